"""MG18: attention is told the number that its layer has on its stage.

With scaling by layers, scores are divided by the layer's number before the softmax, which
multiplies them by it again, so that they fit into fp16. With the stage's own number they are too
large where that is what the number is for. In fp32 and bf16 only what the softmax receives is
another: the result is the same but for round-off.

Source: Megatron-LM 0504e973d8. Needs: PP, --qk-layer-scaling.
"""

from __future__ import annotations

from typing import Any

ID = "MG18"
TITLE = "PP: attention is given the layer's number on its stage"
SOURCE = "Megatron-LM 0504e973d8"
NPROC = 2
SHARED_FLAGS = ["--qk-layer-scaling"]
FLAGS = ["--pp", "2", *SHARED_FLAGS]
EXPECT = {
    # The third layer divides by one instead of three, the fourth by two instead of four.
    "fqn": [r"decoder\.layers\.[23]\.self_attention\.core_attention(\.scale_mask_softmax)?"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["K", "W", "Z"],
}


def inject() -> None:
    """Attention subtracts what a stage adds to the numbers of its layers."""
    from megatron.core.transformer import attention
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    kind = attention.SelfAttention
    construct = kind.__init__

    def construct_with_own_number(
        self: Any, config: Any, submodules: Any, layer_number: int, *args: Any, **kwargs: Any
    ) -> None:
        offset = get_transformer_layer_offset(config)
        construct(self, config, submodules, layer_number - offset, *args, **kwargs)

    kind.__init__ = construct_with_own_number
