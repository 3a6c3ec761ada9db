"""Capture of loops on Hugging Face's accelerate, its Trainer among them, without a changed line.

`Accelerator.prepare` is where model and optimizer meet: what it returns is attached as if the loop
had called `ttrace.attach`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def register(on_import: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
    """Imports nothing."""
    on_import("accelerate.accelerator", _patch)


def _patch(module: ModuleType) -> None:
    owner = module.Accelerator
    original = owner.prepare

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _attach(self)
        return result

    owner.prepare = prepare


def _attach(accelerator: Any) -> None:
    """Model and optimizer may be prepared together or one after the other."""
    from ttrace.adapters.torch import attach

    if attach.attached():
        return
    optimizers = list(getattr(accelerator, "_optimizers", ()))
    stepped = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    for model in getattr(accelerator, "_models", ()):
        if any(id(parameter) in stepped for parameter in model.parameters()):
            attach.attach(model, optimizers)
            return
