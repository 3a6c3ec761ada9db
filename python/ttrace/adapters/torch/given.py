"""What the caller gave to `attach`, understood or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ttrace.adapters.torch.declared import Declared, NotDeclared
from ttrace.adapters.torch.loss_scale import plain
from ttrace.adapters.torch.wrappers import wrappers

_CALL = "ttrace.attach(model, optimizer)"


class Misuse(Exception):
    """Nothing can be captured. Its text says in one sentence what to give instead."""


@dataclass(frozen=True)
class Given:
    """By one call of `attach`."""

    models: Mapping[str, nn.Module]  # by name, of which a single one may have none
    optimizers: tuple[torch.optim.Optimizer, ...]
    loss_fn: Callable[..., Any] | None = None
    step: Callable[..., Any] | None = None  # forward and backward of one iteration
    declared: Declared | None = None  # where plain tensors lie

    @staticmethod
    def of(
        model: Any,
        optimizer: Any,
        loss_fn: Any = None,
        step: Any = None,
        mesh: Any = None,
        placements: Any = None,
    ) -> Given:
        """Raises Misuse."""
        if _is_optimizer(model) and isinstance(optimizer, nn.Module):
            raise Misuse(f"model and optimizer are given the wrong way round: call {_CALL}")
        models = _models(model)
        found = tuple(plain(one) for one in _optimizers(optimizer))
        for name, value in (("loss_fn", loss_fn), ("step", step)):
            if isinstance(value, type) or (value is not None and not callable(value)):
                raise Misuse(f"{name} is {_shown(value)}, which cannot be called as it is")
        if not any(p.requires_grad for one in models.values() for p in one.parameters()):
            kinds = ", ".join(type(one).__name__ for one in models.values())
            raise Misuse(
                f"the model ({kinds}) has no parameter that is trained: "
                "call attach once requires_grad is set as the loop needs it"
            )
        try:
            declared = Declared.of(mesh, placements)
        except NotDeclared as reason:
            raise Misuse(str(reason)) from None
        return Given(models, found, loss_fn, step, declared)

    @property
    def loss_name(self) -> str:
        """Of `loss_fn`; "" if none was given."""
        if self.loss_fn is None:
            return ""
        name = getattr(self.loss_fn, "__qualname__", None)
        return name or type(self.loss_fn).__name__

    def doubts(self) -> Iterator[str]:
        """What is captured, but most likely is not what was meant: a sentence each."""
        parameters = [p for model in self.models.values() for p in model.parameters()]
        groups = (group for one in self.optimizers for group in one.param_groups)
        stepped = {id(parameter) for group in groups for parameter in group["params"]}
        if stepped.isdisjoint(map(id, parameters)):
            yield (
                "the optimizer steps none of the model's parameters: was the model made again, or "
                "converted, after the optimizer?"
            )
        if any(parameter.grad is not None for parameter in parameters):
            yield (
                "the model has gradients already: what came before attach is not captured; call "
                "it right after the optimizer is made"
            )


def trace_folder(out: Any) -> str:
    """Absolute. Raises Misuse for what names no folder."""
    if not isinstance(out, str | os.PathLike) or not isinstance(os.fspath(out), str):
        raise Misuse(f"out is {_shown(out)}: give the path of the trace's folder")
    if not os.fspath(out):
        raise Misuse("out is an empty path: give the path of the trace's folder")
    return os.path.abspath(os.fspath(out))


def _models(given: Any) -> dict[str, nn.Module]:
    """A list's have the names 0, 1, ..."""
    if isinstance(given, Mapping):
        found = {_name(name): _model(model) for name, model in given.items()}
    elif isinstance(given, list | tuple | nn.ModuleList):
        models = list(given)
        single = len(models) == 1
        found = {"" if single else str(k): _model(model) for k, model in enumerate(models)}
    else:
        found = {"": _model(given)}
    if not found:
        raise Misuse(f"no model is given: call {_CALL}")
    for name, model in found.items():
        for other, outer in found.items():
            if name != other and wrappers(model)[-1] in set(outer.modules()):
                raise Misuse(
                    f"the model {name!r} is a part of the model {other!r}: give the outer one alone"
                )
    return found


def _name(given: Any) -> str:
    if not isinstance(given, str) or not given or "." in given or hasattr(nn.Module, given):
        raise Misuse(
            f"{given!r} is no name for a model: names begin those of its modules, and are words "
            "without a dot"
        )
    return given


def _model(given: Any) -> nn.Module:
    if isinstance(given, type):
        raise Misuse(f"the model is the class {given.__name__}: give what it makes")
    if isinstance(given, Iterable) and not isinstance(given, nn.Module):
        raise Misuse(f"the model is {_shown(given)}: give the module itself, not its parameters")
    if not isinstance(given, nn.Module):
        raise Misuse(f"the model is {_shown(given)}, and no torch.nn.Module: call {_CALL}")
    return given


def _optimizers(given: Any) -> list[torch.optim.Optimizer]:
    given = list(given.values()) if isinstance(given, Mapping) else given
    found = list(given) if isinstance(given, list | tuple) else [given]
    if not found:
        raise Misuse("there is no optimizer in the list: give all that step in each iteration")
    for one in found:
        if isinstance(one, type):
            raise Misuse(f"the optimizer is the class {one.__name__}: give what it makes")
        if isinstance(one, LRScheduler):
            raise Misuse(
                f"{type(one).__name__} is a scheduler: give the optimizer that it changes, "
                "its .optimizer"
            )
        if isinstance(one, nn.Parameter) or isinstance(one, Iterator):
            raise Misuse("the optimizer is given as parameters: give the object that steps them")
        if not _is_optimizer(plain(one)):
            raise Misuse(f"the optimizer is {_shown(one)}, and no torch.optim.Optimizer")
    return found


def _is_optimizer(one: Any) -> bool:
    return isinstance(one, torch.optim.Optimizer)


def _shown(value: Any) -> str:
    return f"of type {type(value).__name__}" if not isinstance(value, type) else repr(value)
