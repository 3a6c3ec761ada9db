"""T4: gradients are summed over the data-parallel ranks and never averaged.

Every gradient is exactly dp times too large. The gradient norm shows it; the parameters do not,
because Adam and gradient clipping remove a constant factor.

Source: Megatron-LM, fixed by adfa873d96 and 3373641ff1. Needs: DP.
"""

from __future__ import annotations

from typing import Any

ID = "T4"
TITLE = "DP: gradients not averaged"
SOURCE = "Megatron-LM fixes adfa873d96, 3373641ff1"
NPROC = 2
FLAGS: list[str] = []
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
    """After construction, gives all buckets of a model the factor 1."""
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def construct_without_factor(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for buffer in self.buffers + self.expert_parallel_buffers:
            for bucket in buffer.buckets:
                bucket.gradient_scaling_factor = 1.0

    ddp.__init__ = construct_without_factor
