"""Capture of loops on Hugging Face's accelerate, its Trainer among them, without a changed line.

`Accelerator.prepare` is where model and optimizer meet: what it returns is attached as if the loop
had called `ttrace.attach`.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ttrace.capture.scope import OnImport, Scope


def register(on_import: OnImport, scope: Scope) -> None:
    """Imports nothing."""
    on_import("accelerate.accelerator", functools.partial(_patch, scope))


def _patch(scope: Scope, module: ModuleType) -> None:
    owner = module.Accelerator
    original = owner.prepare

    @functools.wraps(original)
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _attach(scope, self)
        return result

    scope.patches.replace(owner, "prepare", prepare)


def _attach(scope: Scope, accelerator: Any) -> None:
    """Model and optimizer may be prepared together or one after the other."""
    from ttrace.adapters.torch.attach import attach_loop

    if scope.has_loop or scope.is_closed:
        return
    optimizers = list(getattr(accelerator, "_optimizers", ()))
    stepped = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    for model in getattr(accelerator, "_models", ()):
        if any(id(parameter) in stepped for parameter in model.parameters()):
            attach_loop(scope, model, optimizers)
            return
