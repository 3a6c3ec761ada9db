"""T5: the shards of embedding and LM head do not match, and the two copies drift apart.

Tied weights have a copy on the first and on the last stage, whose gradients are added up after the
reduce-scatter over data-parallel ranks. That is only right if both stages cut the weight into the
same shards, for which it must have a bucket of its own. Without the mark it shares a bucket, at
another place on each stage, and reduced parts are added to parts that are not reduced.

Source: arXiv 2506.09280, bug 5. Needs: PP, DP, distributed optimizer, tied weights.
"""

from __future__ import annotations

from typing import Any

ID = "T5"
TITLE = "Distributed optimizer: tied embedding and LM head drift apart"
SOURCE = "arXiv 2506.09280, bug 5"
NPROC = 4
FLAGS = ["--pp", "2", "--distributed-optimizer"]
EXPECT = {
    "fqn": [r"embedding\.word_embeddings\.weight", r"output_layer\.weight"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["R", "P"],
}


def inject() -> None:
    """After the copies were made equal, the mark that the buckets look for is taken away."""
    from megatron.core.models.common.language_module import language_module

    module = language_module.LanguageModule
    set_up = module.setup_embeddings_and_output_layer

    def set_up_without_mark(self: Any) -> None:
        set_up(self)
        for parameter in self.parameters():
            if getattr(parameter, "shared_embedding", False):
                parameter.shared_embedding = False

    module.setup_embeddings_and_output_layer = set_up_without_mark
