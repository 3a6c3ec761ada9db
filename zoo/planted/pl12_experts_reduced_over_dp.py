"""PL12: gradients of experts are summed over all data-parallel ranks.

Among these are ranks that hold other experts: each expert learns from what others have seen too.

Needs: EP, DP larger than EP.
"""

from __future__ import annotations

from typing import Any

ID = "PL12"
TITLE = "EP: gradients of experts are reduced over ranks with other experts"
NPROC = 4
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.experts\.local_experts\.\d+\.linear_fc[12]\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["W"],
}


def inject() -> None:
    """After construction the buckets of experts have the group of the others."""
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def construct_with_other_group(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for group in self.expert_parallel_bucket_groups:
            group.data_parallel_group = self.dp_cp_group

    ddp.__init__ = construct_with_other_group
