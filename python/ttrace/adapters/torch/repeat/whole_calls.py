"""Calls of the model as the loop makes them: of the outermost of its wrappers that is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from ttrace.adapters.torch.compiled import AroundCall
from ttrace.adapters.torch.wrappers import wrappers

# Given the module that is called, and its arguments; what it returns is handed to `after`.
Before = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[Any, Any], None]  # given that, and the output


class WholeCalls:
    """Of one model. To be made before hooks that change arguments are installed."""

    def __init__(self, before: Before, after: After, broken_off: Callable[[Any], None]) -> None:
        """`broken_off` is called in place of `after` once it is known that an exception ended a
        call."""
        self._before, self._after, self._broken_off = before, after, broken_off
        self._handles: list[AroundCall] = []
        self._running: list[tuple[nn.Module, Any]] = []  # at most one

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """These and no others, from now on."""
        self.remove()
        self._handles = [AroundCall(m, self._called, self._returned, first=False) for m in modules]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._running:
            outermost, what = self._running[0]
            if outermost is not module and _is_within(module, outermost):
                return
            self._running.clear()
            self._broken_off(what)
        self._running.append((module, self._before(module, args, kwargs)))

    def _returned(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._running and self._running[0][0] is module:
            _, what = self._running.pop()
            self._after(what, output)


def _is_within(module: nn.Module, outer: nn.Module) -> bool:
    return any(inner is module for inner in wrappers(outer)[1:])
