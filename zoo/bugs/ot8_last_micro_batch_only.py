"""OT8: only the last micro-batch's gradient is kept.

The gradients of the micro-batches of a step are added up in a buffer. Copied there instead of
added, each replaces the one before. What remains is a gradient of the right direction and size: of
a smaller batch.

Source: Fast-LLM issue 550 (without data parallelism, with shared gradient buffers). Needs: more
than one micro-batch a rank.
"""

from __future__ import annotations

from typing import Any

ID = "OT8"
TITLE = "Accumulation: only the last micro-batch's gradient is kept"
SOURCE = "Fast-LLM issue 550"
NPROC = 2
FLAGS = ["--tp", "2"]
EXPECT = {
    # Every parameter is hit.
    "fqn": [r".+\.(weight|bias)"],
    "direction": "backward",
    "stage": "compute",
    "classes": ["S"],
}


def inject() -> None:
    """Replaces the hook behind each parameter's gradient by one that assigns."""
    from megatron.core.distributed import distributed_data_parallel

    def make_assigning_hook(self: Any, parameter: Any) -> Any:
        def assign(*unused: Any) -> None:
            if parameter.grad is not None:
                parameter.main_grad.copy_(parameter.grad)
            parameter.grad = None

        return assign

    ddp = distributed_data_parallel.DistributedDataParallel
    ddp._make_backward_post_hook = make_assigning_hook
