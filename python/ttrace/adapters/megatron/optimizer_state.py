"""What Megatron's optimizers hold in place of the model's parameters: masters in fp32, shards of a
flat buffer, and the moments of the torch optimizer inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

# Lists of groups of model parameters, and of what the optimizer holds in their place.
_PAIRS = (
    ("float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_float16_groups"),
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)
# Of the torch optimizer's state, by its own names.
STATES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step")


def parts(optimizer: Any) -> Iterator[Any]:
    """Those that hold a torch optimizer; a rank of a stage without parameters has none."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        if hasattr(getattr(part, "optimizer", None), "param_groups"):
            yield part


def model_parameters(part: Any) -> dict[int, torch.Tensor]:
    """The model's parameter by the id of what is held in its place."""
    found: dict[int, torch.Tensor] = {}
    for own, held in _PAIRS:
        groups = zip(getattr(part, own, None) or (), getattr(part, held, None) or (), strict=False)
        for parameters, masters in groups:
            for parameter, master in zip(parameters, masters, strict=False):
                if master is not None:
                    found[id(master)] = parameter
    return found


def held(optimizer: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]:
    """(model's parameter, what is stepped in its place or itself, the state of its step)."""
    for part in parts(optimizer):
        known = model_parameters(part)
        for group in part.optimizer.param_groups:
            for tensor in group["params"]:
                state = part.optimizer.state.get(tensor, {})
                values = {n: state[n] for n in STATES if torch.is_tensor(state.get(n))}
                if "step" not in values and isinstance(group.get("step"), int):
                    values["step"] = torch.tensor(group["step"], dtype=torch.float32)
                yield known.get(id(tensor), tensor), tensor, values
