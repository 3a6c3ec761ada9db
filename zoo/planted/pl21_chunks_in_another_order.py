"""PL21: layers are numbered as if a stage's chunks followed each other.

With virtual stages the model goes round all stages before a stage's second chunk. The layers
compute in that order whatever their numbers say: here every third one attends to the whole
sequence.

Needs: VPP, something that depends on a layer's number.
"""

from __future__ import annotations

ID = "PL21"
TITLE = "VPP: layers of chunks are numbered as without interleaving"
NPROC = 2
SHARED_FLAGS = ["--window", "8", "--window-skip", "3"]
FLAGS = ["--pp", "2", "--vpp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.[12]\.self_attention\.core_attention.*"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["W"],
}


def inject() -> None:
    """The offset of a chunk is that of a block of the stage."""
    from megatron.core.transformer import transformer_block, transformer_layer

    from source_edit import edited

    offset = edited(
        transformer_layer.get_transformer_layer_offset,
        "offset = vp_stage * total_virtual_chunks + (pp_rank * num_layers_per_virtual_rank)",
        "offset = pp_rank * vp_size * num_layers_per_virtual_rank"
        " + vp_stage * num_layers_per_virtual_rank",
    )
    transformer_block.get_transformer_layer_offset = offset
    transformer_layer.get_transformer_layer_offset = offset
