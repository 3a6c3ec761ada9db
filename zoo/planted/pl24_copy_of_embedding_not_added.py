"""PL24: the gradient of the last stage's copy of the embedding is not added to the first's.

Multi-token prediction embeds further tokens on the last stage, by a copy of the first stage's
weight. Where the LM head is a weight of its own, that copy is the only reason to add up gradients
of the two stages, and a step that asks only whether the head is tied forgets it: the copies drift
apart.

Needs: PP, multi-token prediction, no tied head.
"""

from __future__ import annotations

from typing import Any

ID = "PL24"
TITLE = "PP: gradients of the embedding of further tokens are not added to the first stage's"
NPROC = 2
SHARED_FLAGS = ["--mtp", "1", "--no-tied"]
FLAGS = ["--pp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"embedding\.word_embeddings\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """What reduces copies of the embedding asks for a tied head only."""
    import sys

    import megatron.core.distributed.finalize_model_grads  # noqa: F401

    # The package exports a function under its module's name, so ask for the module itself.
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    shared = module._get_shared_word_embedding_weight

    def of_tied_head(model_module: Any, config: Any) -> Any:
        tied = model_module.share_embeddings_and_output_weights
        return shared(model_module, config) if tied else None

    module._get_shared_word_embedding_weight = of_tied_head
