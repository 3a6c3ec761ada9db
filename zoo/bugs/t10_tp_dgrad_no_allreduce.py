"""T10: the input gradient of a column-parallel linear is used without its all-reduce.

A column-parallel linear owns some columns of the output, so that its gradient of the input is a
partial sum over the tensor-parallel ranks. The all-reduce runs asynchronously beside the weight
gradient; used before it has ended, or without it, each rank goes on with its own part. Forward is
clean, and so are the linear's own weight gradients.

Source: TransformerEngine issues 1004 and 1088. Needs: TP without SP.
"""

from __future__ import annotations

from typing import Any

ID = "T10"
TITLE = "TP: input gradient of column-parallel linears not all-reduced"
SOURCE = "TransformerEngine issues 1004, 1088"
NPROC = 2
FLAGS = ["--tp", "2"]
EXPECT = {
    # All column-parallel linears have it; backward meets the output layer first.
    "fqn": [r"output_layer"],
    "affected": [r"output_layer", r".+\.linear_qkv", r".+\.linear_fc1", r".+\.mlp\.up"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """Clears the flag by which the linear's backward knows that it must reduce."""
    from megatron.core.tensor_parallel import layers

    linear = layers.LinearWithGradAccumulationAndAsyncCommunication
    backward = linear.backward

    def backward_without_reduction(ctx: Any, *grad_outputs: Any) -> Any:
        ctx.allreduce_dgrad = False
        return backward(ctx, *grad_outputs)

    linear.backward = staticmethod(backward_without_reduction)
