"""Hooks around the steps of the loop's optimizers.

A step may be given a closure, which makes the gradients that it steps: then it begins, as far as
anybody who looks at gradients is concerned, when the closure's first call is over. What it calls
the closure for again (a line search) is no forward of the loop's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class StepHooks:
    """`before(optimizer)` is called when the gradients of a step are complete, `after(optimizer)`
    when it is over; `before_closure(optimizer)` before a closure is called for the first time in a
    step, `before_again(optimizer)` before each further call."""

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        before: Callable[[Any], None],
        after: Callable[[Any], None],
        before_closure: Callable[[Any], None],
        before_again: Callable[[Any], None],
    ) -> None:
        self._optimizers = list(optimizers)
        self._before = before
        self._after = after
        self._before_closure = before_closure
        self._before_again = before_again
        self._stopped = False
        self._inside = False
        self._handles_before: list[Any] = []
        self._handles_after = [
            optimizer.register_step_post_hook(self._step_ends) for optimizer in self._optimizers
        ]
        self._farewells: dict[Any, Any] = {}  # by optimizer, a handle
        self.come_last()

    def come_last(self) -> None:
        """Behind hooks that the loop has added since: they may change gradients before a step. Not
        to be called while torch goes through them; a closure is called when it has."""
        for handle in self._handles_before:
            handle.remove()
        self._handles_before = [
            optimizer.register_step_pre_hook(self._step_begins) for optimizer in self._optimizers
        ]

    def stop(self) -> None:
        """They do nothing any more, and are gone now or at the end of the step that runs."""
        self._stopped = True
        if not self._inside:
            self._remove()

    def _remove(self) -> None:
        for handle in (*self._handles_before, *self._handles_after, *self._farewells.values()):
            handle.remove()

    def _say_farewell_last(self, optimizer: Any) -> None:
        """Within a step torch goes through its tables of hooks, which must not change meanwhile,
        but for what comes after the last: that one may remove all."""
        handle = self._farewells.get(optimizer)
        hooks = optimizer._optimizer_step_post_hooks
        if handle is None or next(reversed(hooks), None) != handle.id:
            if handle is not None:
                handle.remove()
            self._farewells[optimizer] = optimizer.register_step_post_hook(self._farewell)

    def _farewell(self, *_: Any) -> None:
        self._inside = False
        if self._stopped:
            self._remove()

    def _step_begins(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Arguments | None:
        """What the step gets in place of its arguments. `args` begin with the optimizer."""
        if self._stopped:
            return None
        self._inside = True
        self._say_farewell_last(optimizer)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._before(optimizer)
            return None
        watched = self._watched(optimizer, closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _watched(self, optimizer: Any, closure: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(closure, updated=())
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            first = calls == 1
            if not self._stopped:
                (self._before_closure if first else self._before_again)(optimizer)
            result = closure(*args, **kwargs)
            if first and not self._stopped:
                self._before(optimizer)
            return result

        return watched

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        self._inside = True  # a step may call that of its base class, which has ended before
        if not self._stopped:
            self._after(optimizer)
