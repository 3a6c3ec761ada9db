"""What Megatron's optimizers hold in place of the model's parameters: masters in fp32, shards of a
flat buffer, and the moments of the torch optimizer inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ttrace.capture.optimizer_states import stepped

# Lists of groups of model parameters, and of what the optimizer holds in their place.
_PAIRS = (
    ("float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_float16_groups"),
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
    ("model_fp32_groups", "shard_fp32_groups"),
)


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


def states(optimizer: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, the model's parameter, value): "updated" is the parameter itself, "master" what is
    stepped in its place in another precision."""
    for part in parts(optimizer):
        known = model_parameters(part)
        for name, tensor, value in stepped(part.optimizer):
            parameter = known.get(id(tensor), tensor)
            if name != "updated":
                yield name, parameter, value
                continue
            yield name, parameter, parameter
            if tensor.dtype != parameter.dtype:
                yield "master", parameter, tensor
