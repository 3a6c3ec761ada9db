"""MG8: gradients of experts are ep times too large.

An expert's gradient is summed over fewer ranks than that of other parameters, but it has seen the
tokens of all of them: it is divided by the whole data-parallel size. Divided by the number of ranks
that hold the expert, it is ep times too large. Adam hides the factor in the parameters.

Source: the factor of experts in Megatron-LM's distributed_data_parallel.py. Needs: EP.
"""

from __future__ import annotations

from typing import Any

ID = "MG8"
TITLE = "EP: gradients of experts are ep times too large"
SOURCE = "Megatron-LM, expert_gradient_scaling_factor"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.experts\.local_experts\.\d+\.linear_fc[12]\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["K"],
    "factor": 2.0,
}


def inject() -> None:
    """After construction, gives the buckets of experts the factor of their own group."""
    from megatron.core import parallel_state
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def construct_with_wrong_factor(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for buffer in self.expert_parallel_buffers:
            for bucket in buffer.buckets:
                bucket.gradient_scaling_factor = (
                    1.0 / parallel_state.get_expert_data_parallel_world_size()
                )

    ddp.__init__ = construct_with_wrong_factor
