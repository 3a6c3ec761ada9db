"""PL2: rows of one expert go to its neighbour on another rank.

The dispatcher reads from a map which experts a token goes to. Two columns of it, of experts on both
sides of a border between ranks, are exchanged, and their probabilities with them.

Needs: EP.
"""

from __future__ import annotations

from typing import Any

ID = "PL2"
TITLE = "EP: rows of one expert go to its neighbour on another rank"
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
    """The columns on both sides of the middle are exchanged on their way into the dispatcher."""
    from megatron.core.transformer.moe import token_dispatcher

    kind = token_dispatcher.MoEAlltoAllTokenDispatcher
    preprocess = kind.dispatch_preprocess

    def preprocess_exchanged(self: Any, tokens: Any, routing_map: Any, probs: Any) -> Any:
        order = list(range(self.num_experts))
        middle = self.num_experts // 2
        order[middle - 1], order[middle] = middle, middle - 1
        return preprocess(
            self, tokens, routing_map[:, order].contiguous(), probs[:, order].contiguous()
        )

    kind.dispatch_preprocess = preprocess_exchanged
