"""PL17: Adam's moments are not corrected for their start at zero.

The first updates are about three times too large with the usual betas. It passes by itself.

Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL17"
TITLE = "Optimizer: Adam without bias correction"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    "fqn": [r".+\.(weight|bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["K", "W"],
}


def inject() -> None:
    """Adam begins to count at a step where the correction is one."""
    import torch

    class LateAdam(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    if parameter.grad is not None and not state:
                        state["step"] = torch.tensor(1e6)
                        state["exp_avg"] = torch.zeros_like(parameter)
                        state["exp_avg_sq"] = torch.zeros_like(parameter)
            return super().step(closure)

    torch.optim.AdamW = LateAdam
