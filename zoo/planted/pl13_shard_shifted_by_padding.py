"""PL13: the gradient of a parameter that two ranks share is shifted by 64 elements.

The flat buffer is padded to multiples of 64. Counted at the wrong place, the rank that holds a
parameter's second part reads the gradient 64 elements too early. What is cut nowhere is right.

Needs: DP, distributed optimizer.
"""

from __future__ import annotations

ID = "PL13"
TITLE = "Distributed optimizer: a shard's gradient is shifted by 64 elements"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    # The norm is taken of what the step takes, and stands before it.
    "fqn": [r"grad_norm"],
    "affected": [r".+\.(weight|bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["G"],
}


def inject() -> None:
    """The range within a parameter begins and ends too early, where it does not begin at zero."""
    from megatron.core.optimizer import distrib_optimizer

    from source_edit import edited

    kind = distrib_optimizer.DistributedOptimizer
    kind._copy_model_grads_to_main_grads = edited(
        kind._copy_model_grads_to_main_grads,
        "model_grad.view(-1)[param_range.start : param_range.end]",
        "model_grad.view(-1).roll(64 if param_range.start else 0)"
        "[param_range.start : param_range.end]",
    )
