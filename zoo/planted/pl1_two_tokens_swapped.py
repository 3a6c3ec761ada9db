"""PL1: two tokens are swapped before they are sent to the experts.

The dispatcher sorts tokens by expert and remembers the order to undo it. Here the first two of the
sorted ones change places: if they are of one expert, each comes back as the other.

Needs: experts.
"""

from __future__ import annotations

ID = "PL1"
TITLE = "EP: two tokens are swapped before they are sent"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp(\.experts.*)?"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["X"],
}


def inject() -> None:
    """The rows move, what is remembered does not."""
    from megatron.core.transformer.moe import token_dispatcher

    from source_edit import edited

    token_dispatcher.permute = edited(
        token_dispatcher.permute,
        "permuted_input = tokens.index_select(0, sorted_indices)",
        "permuted_input = tokens.index_select("
        "0, sorted_indices[[1, 0, *range(2, sorted_indices.numel())]])",
    )
