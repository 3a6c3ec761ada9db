"""MG25: nobody finalizes the gradients, so that data-parallel ranks never exchange them.

The schedule calls a function of its configuration after the last backward, which sums gradients
over the data-parallel ranks. If it is not set there, there is nothing to call: every rank trains on
its own data, and the copies of the model drift apart. The loss of each falls.

Source: Megatron-LM issue 1685 (its example of a training loop). Needs: DP.
"""

from __future__ import annotations

from typing import Any

ID = "MG25"
TITLE = "DP: gradients are never finalized"
SOURCE = "Megatron-LM issue 1685"
NPROC = 2
FLAGS: list[str] = []
EXPECT = {
    # Every parameter is hit.
    "fqn": [r".+\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """The configuration that the schedule asks for has no such function."""
    from megatron.core.pipeline_parallel import schedules

    get_model_config = schedules.get_model_config

    def config_without_finalize(model: Any) -> Any:
        config = get_model_config(model)
        config.finalize_model_grads_func = None
        return config

    schedules.get_model_config = config_without_finalize
