"""Tensors that a model leaves in attributes of its modules, for the loop to take from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn


def kept_in(modules: Iterable[nn.Module], tensor: torch.Tensor) -> Callable[[], Any] | None:
    """How to get at the tensor, as the model's last forward left it; None: it is not there."""
    for module in (inner for outer in modules for inner in outer.modules()):
        for name, value in vars(module).items():
            if value is tensor:
                return partial(getattr, module, name)
            if isinstance(value, list | tuple):
                items: Any = enumerate(value)
            elif isinstance(value, dict) and name not in ("_parameters", "_buffers", "_modules"):
                items = value.items()
            else:
                continue
            for key, item in items:
                if item is tensor:
                    return partial(_item, module, name, key)
    return None


def _item(module: nn.Module, name: str, key: Any) -> Any:
    return getattr(module, name)[key]
