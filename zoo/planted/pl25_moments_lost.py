"""PL25: Adam's moments are lost between two steps.

As after a checkpoint that was loaded without them. The step itself is right, from what it finds.

Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL25"
TITLE = "Optimizer: moments are reset between steps"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    "fqn": [r".+"],
    "direction": "update",
    "stage": "optimizer",
    "iteration": 0,
    "classes": ["C"],
}


def inject() -> None:
    """Whenever an iteration begins."""
    from megatron.core.optimizer import distrib_optimizer

    kind = distrib_optimizer.DistributedOptimizer
    zero_grad = kind.zero_grad

    def reset(self: Any, *args: Any, **kwargs: Any) -> None:
        for state in self.optimizer.state.values():
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()
        zero_grad(self, *args, **kwargs)

    kind.zero_grad = reset
