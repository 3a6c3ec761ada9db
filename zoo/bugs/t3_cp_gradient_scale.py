"""T3: gradients are divided by the data-parallel size where dp x cp is meant.

Gradients are summed over all ranks that hold the same parameters, which under context parallelism
are dp x cp ranks, and each holds the mean over its own part. Dividing by dp alone makes every
gradient cp times too large. Adam and gradient clipping hide the factor in the parameters.

Source: Megatron-LM issues 673 and 906, fixed by 3bdcbbbe5d. Needs: CP.
"""

from __future__ import annotations

from typing import Any

ID = "T3"
TITLE = "CP: gradients scaled by 1/dp instead of 1/(dp cp)"
SOURCE = "Megatron-LM issues 673, 906; fix 3bdcbbbe5d"
NPROC = 2
FLAGS = ["--cp", "2"]
EXPECT = {
    # Every parameter is hit; the first is that of the first bucket.
    "fqn": [r".+\.(weight|bias)"],
    "first": "decoder.final_layernorm.bias",
    "direction": "backward",
    "stage": "communication",
    "classes": ["K"],
    "factor": 2.0,
}


def inject() -> None:
    """After construction, gives all buckets of a model the factor without context parallelism."""
    from megatron.core import parallel_state
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def construct_with_wrong_factor(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for buffer in self.buffers + self.expert_parallel_buffers:
            for bucket in buffer.buckets:
                bucket.gradient_scaling_factor = 1.0 / parallel_state.get_data_parallel_world_size(
                    with_context_parallel=False
                )

    ddp.__init__ = construct_with_wrong_factor
