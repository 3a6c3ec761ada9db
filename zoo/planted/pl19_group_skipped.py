"""PL19: the optimizer updates only its first group of parameters.

Vectors are the second group. They stay what they were, on every rank alike.

Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL19"
TITLE = "Optimizer: one group of parameters is not updated"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    "fqn": [r".+(layernorm\.weight|\.bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["S"],
}


def inject() -> None:
    """Adam's step sees one group."""
    import torch

    class ShortAdam(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            groups = self.param_groups
            self.param_groups = groups[:1]
            try:
                return super().step(closure)
            finally:
                self.param_groups = groups

    torch.optim.AdamW = ShortAdam
