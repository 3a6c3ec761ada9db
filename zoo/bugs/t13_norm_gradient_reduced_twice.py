"""T13: with TP and CP the gradient of a layernorm's weight is tp times too large.

Without sequence parallelism every tensor-parallel rank normalises the same rows behind an input
gradient that is a whole sum already, so that its gradient of the norm's weight is whole too.
Summing it over the ranks once more makes it tp times too large already in backward, before any
reduction of the step. It happens only where TP and CP meet; either alone is right.

Source: Megatron-LM issue 1528, TransformerEngine issue 1677 (there with FP8). Needs: TP and CP.
"""

from __future__ import annotations

from typing import Any

ID = "T13"
TITLE = "TP+CP: gradient of a layernorm's weight is tp times too large"
SOURCE = "Megatron-LM issue 1528; TransformerEngine issue 1677"
NPROC = 4
FLAGS = ["--tp", "2", "--cp", "2"]
EXPECT = {
    # The norms that TransformerEngine fuses with the linear behind them: not the final one.
    "fqn": [r"decoder\.layers\.\d+\.(input|pre_mlp)_layernorm\.weight"],
    "direction": "backward",
    "stage": "compute",
    "classes": ["K"],
    "factor": 2.0,
}


def inject() -> None:
    """After construction of a layer, its norms' weights sum their gradients over TP."""
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.transformer import transformer_layer

    layer = transformer_layer.TransformerLayer
    construct = layer.__init__

    def summed_over_tp(gradient: Any) -> Any:
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=parallel_state.get_tensor_model_parallel_group())
        return gradient

    def construct_with_another_sum(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        both = self.config.tensor_model_parallel_size > 1 and self.config.context_parallel_size > 1
        if both and not self.config.sequence_parallel:
            for norm in (self.input_layernorm, self.pre_mlp_layernorm):
                norm.weight.register_hook(summed_over_tp)

    layer.__init__ = construct_with_another_sum
