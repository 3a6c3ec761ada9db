"""PL16: biases and norms decay too.

Megatron gives vectors a group without weight decay. In one group with all others, norms shrink by a
ten-thousandth or less in a step.

Needs: the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL16"
TITLE = "Optimizer: weight decay on biases and norms"
NPROC = 2
SHARED_FLAGS = ["--weight-decay", "0.1", "--scheduler"]
FLAGS = ["--distributed-optimizer", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r".+(layernorm\.weight|\.bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["H"],
}


def inject() -> None:
    """There is no rule for vectors."""
    from megatron.core import optimizer

    def no_rules(config: Any) -> dict[Any, Any]:
        return {}

    optimizer.get_standard_config_overrides = no_rules
