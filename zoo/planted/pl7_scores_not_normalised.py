"""PL7: scores of the chosen experts are not divided by their sum.

With sigmoid scores those of a token's experts do not add up to one by themselves.

Needs: experts, sigmoid scores.
"""

from __future__ import annotations

ID = "PL7"
TITLE = "Router: scores are not divided by their sum"
NPROC = 2
SHARED_FLAGS = ["--experts", "4", "--router-scores", "sigmoid"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["K"],
}


def inject() -> None:
    """The division is left out."""
    from megatron.core.transformer.moe import router

    from source_edit import edited

    router.topk_routing_with_score_function = edited(
        router.topk_routing_with_score_function,
        "probs = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20) if topk > 1 else scores",
        "probs = scores",
    )
