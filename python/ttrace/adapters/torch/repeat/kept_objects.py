"""Objects beside tensors and plain values that a module keeps what it counts in."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import nn


def is_kept_object(value: Any) -> bool:
    """Whether its attributes may change in a forward. What holds a module is no part of the model,
    but something around it (a trainer): its attributes are the loop's."""
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or callable(value):
        return False
    if isinstance(value, ModuleType | torch.Tensor | nn.Module) or _is_of_torch(type(value)):
        return False
    return not any(isinstance(held, nn.Module) for held in attributes.values())


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"
