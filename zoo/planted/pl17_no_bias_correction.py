"""PL17: Adam's moments are not corrected for their start at zero.

The first updates are about three times too large with the usual betas. It passes by itself.

Needs: the second step.
"""

from __future__ import annotations

ID = "PL17"
TITLE = "Optimizer: Adam without bias correction"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    "fqn": [r".+\.(weight|bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["H"],
}


def inject() -> None:
    """Both corrections are one."""
    from torch.optim import adam

    from source_edit import edited

    adam._single_tensor_adam = edited(
        adam._single_tensor_adam,
        "step_size = lr / bias_correction1\n\n"
        "            bias_correction2_sqrt = bias_correction2**0.5",
        "step_size = lr\n\n            bias_correction2_sqrt = 1.0",
    )
