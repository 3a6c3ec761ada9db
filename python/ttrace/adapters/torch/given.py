"""What the caller gave to `attach`, understood or refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ttrace.adapters.torch.declared import Declared, NotDeclared
from ttrace.adapters.torch.loss_scale import plain
from ttrace.adapters.torch.topology import wrappers

_CALL = "ttrace.attach(model, optimizer)"


class Misuse(Exception):
    """Nothing can be captured. Its text says in one sentence what to give instead."""


@dataclass(frozen=True)
class Given:
    """By one call of `attach`."""

    model: nn.Module
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
        root = _model(model)
        found = tuple(plain(one) for one in _optimizers(optimizer))
        for name, value in (("loss_fn", loss_fn), ("step", step)):
            if isinstance(value, type) or (value is not None and not callable(value)):
                raise Misuse(f"{name} is {_shown(value)}, which cannot be called as it is")
        if not any(parameter.requires_grad for parameter in root.parameters()):
            raise Misuse(
                f"the model ({type(root).__name__}) has no parameter that is trained: "
                "call attach once requires_grad is set as the loop needs it"
            )
        try:
            declared = Declared.of(mesh, placements)
        except NotDeclared as reason:
            raise Misuse(str(reason)) from None
        return Given(root, found, loss_fn, step, declared)

    @property
    def loss_name(self) -> str:
        """Of `loss_fn`; "" if none was given."""
        if self.loss_fn is None:
            return ""
        name = getattr(self.loss_fn, "__qualname__", None)
        return name or type(self.loss_fn).__name__

    def doubts(self) -> Iterator[str]:
        """What is captured, but most likely is not what was meant: a sentence each."""
        parameters = list(wrappers(self.model)[-1].parameters())
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


def _model(given: Any) -> nn.Module:
    if isinstance(given, list | tuple | nn.ModuleList):
        models = list(given)
        if len(models) != 1:
            raise Misuse(
                f"{len(models)} models are given, and calls of one are followed: give the module "
                "whose forward calls the others, or attach in runs of their own"
            )
        given = models[0]
    if isinstance(given, type):
        raise Misuse(f"the model is the class {given.__name__}: give what it makes")
    if isinstance(given, Iterable) and not isinstance(given, nn.Module):
        raise Misuse(f"the model is {_shown(given)}: give the module itself, not its parameters")
    if not isinstance(given, nn.Module):
        raise Misuse(f"the model is {_shown(given)}, and no torch.nn.Module: call {_CALL}")
    return given


def _optimizers(given: Any) -> list[torch.optim.Optimizer]:
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
