"""PL4: rows are weighed by the probabilities of other rows.

Tokens are sorted by expert, and so must be their probabilities. Without the transposition these are
sorted by token: each row has a probability, but that of another.

Needs: experts.
"""

from __future__ import annotations

ID = "PL4"
TITLE = "EP: rows are weighed by probabilities of other tokens"
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
    """A transposition is left out."""
    from megatron.core.transformer.moe import token_dispatcher

    from source_edit import edited

    token_dispatcher.permute = edited(
        token_dispatcher.permute,
        "permuted_probs = probs.T.contiguous().masked_select(routing_map)",
        "permuted_probs = probs.masked_select(routing_map.T)",
    )
