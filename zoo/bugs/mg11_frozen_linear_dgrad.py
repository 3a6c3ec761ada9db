"""MG11: the input gradient of a *frozen* column-parallel linear is not all-reduced.

A linear whose weight is not trained has an autograd function of its own, which skips the weight
gradient, and once skipped the sum of the input gradient over the tensor-parallel ranks too. Frozen
layers look as if nothing could go wrong in them; all layers below get each rank's own part.

Source: Megatron-LM, fixed by 5fffdfc737 ("LinearWithFrozenWeight backward fix when TP > 1").
Needs: TP without SP, and a frozen linear.
"""

from __future__ import annotations

from typing import Any

ID = "MG11"
TITLE = "TP: input gradient of frozen column-parallel linears not all-reduced"
SOURCE = "Megatron-LM fix 5fffdfc737"
NPROC = 2
SHARED_FLAGS = ["--freeze", "linear_fc1"]
FLAGS = ["--tp", "2", *SHARED_FLAGS]
EXPECT = {
    # All frozen ones have it; backward meets the last layer's first.
    "fqn": [r"decoder\.layers\.3\.mlp\.linear_fc1"],
    "affected": [r"decoder\.layers\.\d+\.mlp\.linear_fc1"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """Clears the flag by which the frozen linear's backward knows that it must reduce."""
    from megatron.core.tensor_parallel import layers

    backward = layers.LinearWithFrozenWeight.backward

    def backward_without_reduction(ctx: Any, *grad_outputs: Any) -> Any:
        ctx.allreduce_dgrad = False
        return backward(ctx, *grad_outputs)

    layers.LinearWithFrozenWeight.backward = staticmethod(backward_without_reduction)
