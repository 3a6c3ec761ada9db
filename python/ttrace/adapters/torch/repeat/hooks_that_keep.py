"""Hooks of the user's that may keep something from one call to the next.

A leg calls them, too: they are a part of the computation. What a module keeps is put back after a
leg; what lies in a closure, an object around the model or a global is not known, and a hook that
smooths gradients over iterations, for one, would go on with those of a leg.
"""

from __future__ import annotations

import dis
import functools
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.repeat.tape import version_of

_OF_LIBRARIES = {"torch", "ttrace", "accelerate", "lightning", "megatron", "peft", "transformers"}
_PLAIN = (int, float, complex, bool, str, bytes, type(None), type, torch.dtype, torch.device)
_CONTAINERS = (list, dict, set, deque)
_OF_MODULES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class HooksThatKeep:
    """Of one iteration. Made before its first forward."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._tensors = [
            (hook, value, version_of(value))
            for hook in _hooks_of(root)
            for value in _at_hand(hook)
            if torch.is_tensor(value)
        ]

    def problem(self) -> str:
        """Why a leg cannot call one of them, or nothing."""
        changed = [hook for hook, tensor, version in self._tensors if version_of(tensor) != version]
        hook = next(iter(changed), None) or next(filter(_may_keep, _hooks_of(self._root)), None)
        if hook is None:
            return ""
        name = getattr(hook, "__qualname__", type(hook).__qualname__)
        return f"the hook {name} may keep something from one iteration to the next"


def _hooks_of(root: nn.Module) -> Iterator[Callable[..., Any]]:
    """On modules and parameters, but those of libraries."""
    holders: list[tuple[Any, tuple[str, ...]]] = [(m, _OF_MODULES) for m in root.modules()]
    holders += [(parameter, _OF_PARAMETERS) for parameter in root.parameters()]
    for holder, names in holders:
        for name in names:
            for hook in (getattr(holder, name, None) or {}).values():
                if not _is_of_library(hook):
                    yield hook


def _is_of_library(hook: Any) -> bool:
    if isinstance(hook, functools.partial):
        return _is_of_library(hook.func)
    module = getattr(hook, "__module__", None) or type(hook).__module__
    return module.partition(".")[0] in _OF_LIBRARIES


def _may_keep(hook: Any) -> bool:
    return any(
        not isinstance(value, (*_PLAIN, nn.Module, torch.Tensor, BuiltinFunctionType))
        for value in _at_hand(hook)
    )


def _at_hand(value: Any) -> Iterator[Any]:
    """What a hook can change: itself, if it is more than a function, and what it refers to."""
    if isinstance(value, tuple):
        parts: list[Any] = list(value)
    elif isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, MethodType):
        parts = [value.__self__, value.__func__]
    elif isinstance(value, FunctionType):
        parts = [] if _is_of_library(value) else _of_function(value)
    else:
        yield value
        return
    for part in parts:
        yield from _at_hand(part)


def _of_function(function: FunctionType) -> list[Any]:
    code = function.__code__
    stores = any(
        step.opname == "STORE_GLOBAL"
        or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)
        for step in dis.get_instructions(code)
    )
    named = [function.__globals__.get(name) for name in code.co_names]
    return [
        *([function.__globals__] if stores else ()),
        *(cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)),
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
        *(value for value in named if isinstance(value, _CONTAINERS)),
    ]


def _is_filled(cell: CellType) -> bool:
    return cell != CellType()
