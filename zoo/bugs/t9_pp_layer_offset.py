"""T9: every pipeline stage numbers its layers from one.

A stage adds the number of layers before it to its own. Where that offset is wrong, whatever depends
on a layer's number is wrong with it: here every third layer attends to the whole sequence and the
others through a sliding window, and the third layer of the model is the first of its stage.

Source: Megatron-LM issues 468 and 1304, fixes b759cd37e6 (offset) and 0504e973d8 (attention given
the stage's own number). Needs: PP, and something that depends on the layer's number.
"""

from __future__ import annotations

from typing import Any

ID = "T9"
TITLE = "PP: layers of later stages are numbered from one"
SOURCE = "Megatron-LM issues 468, 1304; fixes b759cd37e6, 0504e973d8"
NPROC = 2
SHARED_FLAGS = ["--window", "8", "--window-skip", "3"]
FLAGS = ["--pp", "2", *SHARED_FLAGS]
EXPECT = {
    # The module that got the window. The other layer of the stage has one in either numbering.
    "fqn": [r"decoder\.layers\.2\.self_attention\.core_attention\.scale_mask_softmax"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["Z", "W"],
}


def inject() -> None:
    """Both modules that ask for the offset of a stage are told zero."""
    from megatron.core.transformer import transformer_block, transformer_layer

    def no_offset(*unused: Any, **unused_too: Any) -> int:
        return 0

    transformer_block.get_transformer_layer_offset = no_offset
    transformer_layer.get_transformer_layer_offset = no_offset
