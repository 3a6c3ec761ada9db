"""What a torch optimizer keeps from step to step, by the names that torch has for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_STATES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step")


def beside(optimizer: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, what is stepped, value) of all else that it keeps of a parameter, under names of its
    own: no step is made again of it, but nobody else should change it."""
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            for name, value in optimizer.state.get(tensor, {}).items():
                if isinstance(name, str) and name not in _STATES and torch.is_tensor(value):
                    yield name, tensor, value


def stepped(optimizer: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, what is stepped, value) of all that it steps: "updated" is that itself. Some count
    their steps by group, and not for each parameter."""
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            state = optimizer.state.get(tensor, {})
            values = {name: state[name] for name in _STATES if torch.is_tensor(state.get(name))}
            if "step" not in values and isinstance(group.get("step"), int):
                values["step"] = torch.tensor(float(group["step"]))
            yield "updated", tensor, tensor
            for name, value in values.items():
                yield name, tensor, value
