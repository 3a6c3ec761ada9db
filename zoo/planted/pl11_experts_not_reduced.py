"""PL11: gradients of experts are not reduced over the ranks that hold copies.

Experts have buffers and a group of their own. Forgotten there, the copies of an expert drift apart,
while everything else is right.

Needs: EP, DP larger than EP.
"""

from __future__ import annotations

from typing import Any

ID = "PL11"
TITLE = "EP: gradients of experts are not reduced over their replicas"
NPROC = 4
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.experts\.local_experts\.\d+\.linear_fc[12]\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P"],
}


def inject() -> None:
    """After construction the buckets of experts begin no reduction."""
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def start_nothing(*unused: Any, **unused_too: Any) -> None:
        return None

    def construct_without(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for group in self.expert_parallel_bucket_groups:
            group.start_grad_sync = start_nothing

    ddp.__init__ = construct_without
