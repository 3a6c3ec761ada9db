"""Modules that took their values from others: averages of the weights, teachers, references.

A loop may keep such a copy of its model, which capture is not told of and does not compare. Only
that it is there can be said. A copy is made by `copy.deepcopy` or by unpickling, which both restore
a module's state, or given its values by `load_state_dict`: the two functions of torch's Module are
wrapped when torch is imported. A wrapper does what the function does and remembers the module, as
long as somebody else does.

Imports no torch: its module is patched right after it is executed.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from ttrace.capture.patches import Patches

MODULES = "torch.nn.modules.module"

_given: weakref.WeakSet[Any] = weakref.WeakSet()


def patch_modules(module: ModuleType, patches: Patches) -> None:
    for name in ("__setstate__", "load_state_dict"):
        _remember(module.Module, name, patches)


def beside(inside: Iterable[Any], root: Any) -> list[Any]:
    """The outermost modules that took their values from others, have the parameters of `root` or of
    a part of it, and are not `inside` of what is compared, nor around it."""
    compared = {id(module) for module in inside}
    found = []
    for module in list(_given):
        parts = list(module.modules())
        if compared.isdisjoint(map(id, parts)):
            found.append((module, parts))
    deeper = {id(part) for module, parts in found for part in parts if part is not module}
    known = {_shapes(module) for module in root.modules()} - {()}
    return [m for m, _ in found if id(m) not in deeper and _shapes(m) in known]


def _shapes(module: Any) -> tuple[Any, ...]:
    return tuple(parameter.shape for parameter in module.parameters())


def _remember(owner: Any, name: str, patches: Patches) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            _given.add(self)
        except Exception:
            pass  # a class whose objects have no hash
        return result

    patches.replace(owner, name, wrapper)
