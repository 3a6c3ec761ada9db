"""DS1: a pipeline divides the gradient by the number of micro-batches on every stage.

The loss is divided by the number of micro-batches once. A schedule that scales what it hands to a
stage's backward as well does so again on each stage but the last, and early stages learn slowly.
Adam hides it: only weight decay and clipping see the factor.

Source: DeepSpeed issue 8154. Needs: PP, several micro-batches.
"""

from __future__ import annotations

from typing import Any

ID = "DS1"
TITLE = "PP: gradients divided by the number of micro-batches on every stage"
SOURCE = "DeepSpeed issue 8154"
NPROC = 2
FLAGS = ["--pp", "2"]
EXPECT = {
    # What the next stage sends back arrives at the first stage's last layer.
    "fqn": [r"decoder"],
    "direction": "backward",
    "stage": "compute",
    "classes": ["K"],
    "factor": 0.25,
}


def inject() -> None:
    """Scales the gradient that a stage is sent, by the number that the schedule is called with."""
    from megatron.core.pipeline_parallel import schedules

    schedule = schedules.forward_backward_pipelining_without_interleaving
    backward_step = schedules.backward_step
    micro_batches = 1

    def counted(**arguments: Any) -> Any:
        nonlocal micro_batches
        micro_batches = arguments["num_microbatches"]
        return schedule(**arguments)

    def divides(input_tensor: Any, output_tensor: Any, gradient: Any, *rest: Any) -> Any:
        sent = gradient if isinstance(gradient, list) else [gradient]
        sent = [None if g is None else g / micro_batches for g in sent]
        return backward_step(input_tensor, output_tensor, sent, *rest)

    schedules.forward_backward_pipelining_without_interleaving = counted
    schedules.backward_step = divides
