"""PL23: the norm of latent attention's keys and values is not marked as sequence parallel.

With sequence parallelism each rank normalises its own part of the sequence, and the step that adds
up the gradients of such norms finds them by a mark. The norm of another author has none: its copies
drift apart.

Needs: TP, SP, latent attention with norms.
"""

from __future__ import annotations

from typing import Any

ID = "PL23"
TITLE = "SP: gradients of one norm of latent attention are not reduced over TP"
NPROC = 2
SHARED_FLAGS = ["--mla", "--qk-layernorm", "--fix", "latent_keys_summed"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.self_attention\.kv_layernorm\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """After construction of the attention the mark is gone."""
    from megatron.core.transformer import multi_latent_attention

    attention = multi_latent_attention.MLASelfAttention
    construct = attention.__init__

    def construct_without_mark(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        for parameter in self.kv_layernorm.parameters():
            parameter.sequence_parallel = False

    attention.__init__ = construct_without_mark
