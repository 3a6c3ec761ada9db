"""PL6: the best expert of a token gets the probability of the second.

Top-k gives experts and scores in one order. Here the probabilities are written back in the other.

Needs: experts.
"""

from __future__ import annotations

ID = "PL6"
TITLE = "Router: the best expert gets the second's probability"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["X"],
}


def inject() -> None:
    """Probabilities of the chosen experts are flipped, their numbers are not."""
    from megatron.core.transformer.moe import router

    from source_edit import edited

    router.topk_routing_with_score_function = edited(
        router.topk_routing_with_score_function,
        "probs = torch.softmax(scores, dim=-1, dtype=torch.float32).type_as(logits)",
        "probs = torch.softmax(scores, dim=-1, dtype=torch.float32).type_as(logits).flip(-1)",
    )
