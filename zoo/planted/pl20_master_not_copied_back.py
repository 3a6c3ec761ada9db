"""PL20: updated master weights of one group are not copied to the model.

In low precision the optimizer works on copies in fp32. If they are not copied back, the model keeps
its old values while the copies are trained.

Needs: bf16, the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL20"
TITLE = "bf16: one group's master weights are not copied back"
NPROC = 2
SHARED_FLAGS = ["--bf16"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r".+(layernorm\.weight|\.bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["S"],
}


def inject() -> None:
    """The last group of both kinds is left out."""
    from megatron.core.optimizer import optimizer

    kind = optimizer.Float16OptimizerWithFloat16Params
    copy_back = kind._copy_main_params_to_model_params

    def copy_all_but_last(self: Any) -> None:
        groups, mains = self.float16_groups, self.fp32_from_float16_groups
        self.float16_groups, self.fp32_from_float16_groups = groups[:-1], mains[:-1]
        try:
            copy_back(self)
        finally:
            self.float16_groups, self.fp32_from_float16_groups = groups, mains

    kind._copy_main_params_to_model_params = copy_all_but_last
