"""Modules under torch.compile or of torch.jit: where their calls can still be seen.

Inside compiled code no hook runs (`eager_only`), so a compiled module is seen from outside, as one
box: its inputs, outputs and their gradients. `torch.compile(m)` makes a wrapper, a module with
hooks of its own; `m.compile()` replaces what a call of m runs, and with it all hooks of m. A module
of torch.jit takes no hooks, but what its call runs can be replaced as well.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.wrappers import is_compiled_wrapper, wrappers
from ttrace.capture.module_hooks import eager_only
from ttrace.capture.patches import Patches

# Given (args, kwargs): what replaces them, or None. Given the output too: what replaces it.
Before = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], Any]


def is_compiled(module: nn.Module) -> bool:
    return is_compiled_wrapper(module) or not _takes_hooks(module)


def compiled_by(module: nn.Module) -> str:
    return "torch.jit" if _is_of_jit(module) else "torch.compile"


def _is_of_jit(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _takes_hooks(module: nn.Module) -> bool:
    return module.__dict__.get("_compiled_call_impl") is None and not _is_of_jit(module)


def anything_compiled() -> bool:
    """Whether torch has compiled anything in this process. torch itself imports the compiler for
    other reasons."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs"))


def outside(chain: list[nn.Module]) -> nn.Module:
    """Of a model in its wrappers, the outermost first: the one whose calls are seen."""
    return next((module for module in chain if is_compiled(module)), chain[-1])


class _Calls:
    """What a call of a module runs that takes no hooks. The first to come is outermost."""

    def __init__(self, module: nn.Module) -> None:
        self._before: Any = module.__dict__.get("_compiled_call_impl")
        self.inner: Any = self._before or module._call_impl
        self.around: list[tuple[Before, After]] = []
        self._module = module
        self._set(self)

    @staticmethod
    def of(module: nn.Module) -> _Calls:
        calls = module.__dict__.get("_compiled_call_impl")
        return calls if isinstance(calls, _Calls) else _Calls(module)

    def leave(self, entry: tuple[Before, After]) -> None:
        self.around.remove(entry)
        if not self.around and self._module.__dict__.get("_compiled_call_impl") is self:
            self._set(self._before)

    def _set(self, called: Any) -> None:
        # Not as an attribute: modules of torch.jit keep those elsewhere.
        self._module.__dict__["_compiled_call_impl"] = called

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.inner(*args, **kwargs)
        around = list(self.around)
        for before, _ in around:
            changed = before(self._module, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        output = self.inner(*args, **kwargs)
        for _, after in reversed(around):
            other = after(self._module, args, kwargs, output)
            output = output if other is None else other
        return output


class AroundCall:
    """`before` and `after` of every call of a module; has the `remove` of a torch hook."""

    def __init__(self, module: nn.Module, before: Before, after: After, first: bool) -> None:
        """`first`: `after` runs before the module's other hooks."""
        self._handles: list[Any] = []
        self._entry = before, after
        self._calls: _Calls | None = None
        if _takes_hooks(module):
            self._handles = [
                module.register_forward_pre_hook(eager_only(before), with_kwargs=True),
                module.register_forward_hook(eager_only(after), with_kwargs=True, prepend=first),
            ]
            return
        self._calls = _Calls.of(module)
        self._calls.around.append(self._entry)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.leave(self._entry)


def wrappers_around(root: nn.Module) -> list[nn.Module]:
    """The longest chain of wrappers that ends in `root`, which `attach` got without them; the
    outermost first, `root` last."""
    longest = [root]
    for thing in gc.get_objects():
        # By its type: isinstance would ask lazy proxies what they are.
        if type(thing).__name__ not in ("OptimizedModule", "DistributedDataParallel"):
            continue
        if isinstance(thing, nn.Module):
            chain = wrappers(thing)
            if chain[-1] is root and len(chain) > len(longest):
                longest = chain
    return longest


def watch(patches: Patches, compiled: Callable[[nn.Module], None]) -> None:
    """Calls `compiled(module)` with what is called from now on, whenever a module is compiled."""

    def made(model: Any, result: Any) -> Any:
        if is_compiled_wrapper(result):
            compiled(result)
        return result

    def in_place(module: Any, result: Any) -> Any:
        compiled(module)
        return result

    patches.wrap_result(torch, "compile", made)
    patches.wrap_result(nn.Module, "compile", in_place)
