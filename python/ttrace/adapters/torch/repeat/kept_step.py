"""A step that an optimizer makes between two forwards of an iteration, kept so that a leg can make
it again: on leaves of its own, by a copy of the optimizer as it was before the step."""

from __future__ import annotations

import copy
import inspect
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ttrace.adapters.torch.loss_scale import parameters_of
from ttrace.adapters.torch.repeat.swapped_parameters import LOW
from ttrace.adapters.torch.repeat.tape import version_of

_GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


class CannotBeKept(Exception):
    """Its text says why."""


class KeptStep:
    """Made when it begins, with all that it reads in place."""

    def __init__(self, optimizer: torch.optim.Optimizer, keeps_gradients: bool) -> None:
        """`keeps_gradients`: as they are now. Raises CannotBeKept."""
        self.name = type(optimizer).__name__
        self.parameters = parameters_of(optimizer)
        if _needs_closure(type(optimizer).step):
            raise CannotBeKept(f"{self.name} evaluates the iteration itself, in a step of its own")
        if getattr(optimizer, "grad_scale", None) is not None:
            raise CannotBeKept(f"{self.name} divides gradients by a scaler's scale in its step")
        try:
            self._kept = _copied(optimizer, {id(p): p for p in self.parameters})
        except Exception as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            raise CannotBeKept(f"the optimizer {self.name} cannot be copied ({words})") from error
        self._gradients = {
            id(p): p.grad.detach().clone()
            for p in self.parameters
            if keeps_gradients and p.grad is not None
        }

    def added_bytes(self) -> int:
        """Of one leg: its parameters, and what the optimizer has beside them."""
        states: Any = self._kept.state.values()
        tensors = [v for state in states for v in state.values() if torch.is_tensor(v)]
        return sum(t.numel() * t.element_size() for t in (*self.parameters, *tensors))

    def make(
        self, leaves: Mapping[int, torch.Tensor], *, in_fp32: bool, as_found: bool
    ) -> list[torch.Tensor]:
        """Steps the leaves that are in place of the parameters, by id, and returns them.
        `as_found`: with the gradients that were kept. Raises CannotBeKept if it reaches the
        parameters themselves."""
        mine = {id(p): leaves[id(p)] for p in self.parameters}
        for key, gradient in self._gradients.items() if as_found else ():
            mine[key].grad = gradient.clone()
        optimizer = _copied(self._kept, mine)
        if in_fp32:
            _widen(optimizer)
        before = [version_of(p) for p in self.parameters]
        with _no_global_hooks():
            optimizer.step()
        if before != [version_of(p) for p in self.parameters]:
            raise CannotBeKept(f"{self.name} keeps its parameters elsewhere, too")
        return list(mine.values())


def _needs_closure(step: Any) -> bool:
    try:
        closure = inspect.signature(step).parameters.get("closure")
    except (TypeError, ValueError):  # of what is no function of Python's
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


def _copied(
    optimizer: torch.optim.Optimizer, parameters: Mapping[int, torch.Tensor]
) -> torch.optim.Optimizer:
    """With these in place of its parameters, without hooks, and without what others have put in
    place of its methods: schedulers count its steps so."""
    kind = type(optimizer)
    other: Any = object.__new__(kind)
    memo: dict[int, Any] = dict(parameters)
    for name, value in vars(optimizer).items():
        if name.endswith("_hooks"):
            vars(other)[name] = OrderedDict()
        elif not (callable(value) and hasattr(kind, name)):
            vars(other)[name] = copy.deepcopy(value, memo)
    return other


def _widen(optimizer: torch.optim.Optimizer) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value) and value.dtype in LOW:
                state[name] = value.float()


@contextmanager
def _no_global_hooks() -> Iterator[None]:
    """They look at steps of the run."""
    owner = sys.modules["torch.optim.optimizer"]
    before = {name: getattr(owner, name) for name in _GLOBAL_HOOKS if hasattr(owner, name)}
    for name in before:
        setattr(owner, name, OrderedDict())
    try:
        yield
    finally:
        for name, hooks in before.items():
            setattr(owner, name, hooks)
