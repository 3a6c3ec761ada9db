"""MG22: gradients are added to what a gather of parameters left in the gradient buffer.

To save memory the buffer of gradients receives the gather of new parameters before the next
forward. It is zeroed before that, not after it, so that the gradients of every step but the first
are summed onto parameters.

Source: Megatron-LM pull request 4609. Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "MG22"
TITLE = "Gradients are added to parameters left in the gradient buffer, from step 1 on"
SOURCE = "Megatron-LM pull request 4609"
NPROC = 2
FLAGS: list[str] = []
EXPECT = {
    # The buffer of all parameters.
    "fqn": [r".+\.(weight|bias)"],
    "direction": "backward",
    "stage": "compute",
    "classes": ["S"],
    "iteration": 1,
}


def inject() -> None:
    """The first zeroing of the buffers after an update is followed by such a gather.

    megatron-core 0.16.1 gathers so only with an optimizer that needs GPUs; here the parameters
    are copied to where its all-gather would put them.
    """
    from megatron.core.distributed import distributed_data_parallel
    from megatron.core.optimizer import optimizer

    ddp = distributed_data_parallel.DistributedDataParallel
    zero = ddp.zero_grad_buffer
    updates = 0

    def zero_then_gather(self: Any) -> None:
        zero(self)
        if updates:
            for parameter in self.params_with_grad:
                parameter.main_grad.copy_(parameter.data)

    def counting(step: Any) -> Any:
        def count_and_step(self: Any) -> Any:
            nonlocal updates
            updates += 1
            return step(self)

        return count_and_step

    ddp.zero_grad_buffer = zero_then_gather
    for kind in (optimizer.FP32Optimizer, optimizer.MixedPrecisionOptimizer):
        kind.step_with_ready_grads = counting(kind.step_with_ready_grads)
