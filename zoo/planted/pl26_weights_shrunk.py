"""PL26: weights shrink a little between two steps.

As weight decay does, which the optimizer has already. The step itself is right, from what it finds.

Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL26"
TITLE = "bf16: weights are multiplied by 0.999 between steps"
NPROC = 2
SHARED_FLAGS = ["--bf16"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r".+"],
    "direction": "update",
    "stage": "optimizer",
    "iteration": 0,
    "classes": ["C"],
}


def inject() -> None:
    """Masters and what the model computes with, whenever an iteration but the first begins."""
    from megatron.core.optimizer import optimizer

    kind = optimizer.Float16OptimizerWithFloat16Params
    zero_grad = kind.zero_grad
    begun = set()

    def shrink(self: Any, *args: Any, **kwargs: Any) -> None:
        if id(self) in begun:
            for group in self.fp32_from_float16_groups:
                for master in group:
                    master.mul_(0.999)
            self._copy_main_params_to_model_params()
        begun.add(id(self))
        zero_grad(self, *args, **kwargs)

    kind.zero_grad = shrink
