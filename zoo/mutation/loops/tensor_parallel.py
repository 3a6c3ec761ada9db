"""Faults of a model that DTensors cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from mutation.loops.inside import Forward, replace_forward, replace_output
from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions
from mutation.perturb import permuted

_OUTPUT = ("output", "input")
_GRADIENTS = ("grad_local", "grad_reduced", "grad_input", "grad_output")


def _cut(options: LoopOptions) -> bool:
    return options.tensor and options.ranks > 1


def _cut_sequence(options: LoopOptions) -> bool:
    return _cut(options) and options.sequence


def _module(loop: PlainLoop, draw: Draw, *ends: str) -> tuple[str, Any]:
    found = [(name, m) for name, m in loop.net.named_modules() if name.endswith(ends)]
    return draw.rng.choice(found)


def _by_rows(loop: PlainLoop, draw: Draw) -> tuple[str, nn.Module]:
    return _module(loop, draw, ".out", ".down")


def _by_columns(loop: PlainLoop, draw: Draw) -> tuple[str, nn.Module]:
    return _module(loop, draw, ".query", ".key", ".value", ".up")


def _sum_of(module: nn.Module, draw: Draw, change: Callable[[Any, Any], Any]) -> None:
    """`change(terms, sum)` stands for the sum of what a linear that is cut by rows puts out, which
    is made after its forward."""
    redistribute = DTensor.redistribute
    waits = False

    def faulty(right: Forward) -> Forward:
        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal waits
            waits = True
            return right(*args, **kwargs)

        return forward

    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal waits
        made = redistribute(self, *args, **kwargs)
        if waits and any(placement.is_partial() for placement in self.placements):
            waits = False
            return change(self, made)
        return made

    replace_forward(module, draw, faulty)
    DTensor.redistribute = changing


@fault("tensor unsummed", lambda o: _cut(o) and not o.sequence, _OUTPUT, "PR")
def unsummed(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Each rank goes on with its own term."""
    name, module = _by_rows(loop, draw)
    _sum_of(module, draw, lambda terms, whole: _own(terms))
    return [name, name.rpartition(".")[0]]  # where its output is summed


def _own(tensor: Any) -> Any:
    """This rank's part as if it were a copy."""
    return DTensor.from_local(
        tensor.to_local(), tensor.device_mesh, [Replicate()] * tensor.device_mesh.ndim
    )


@fault("tensor twice", _cut, _OUTPUT, "K")
def summed_twice(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The sum is summed again."""
    name, module = _by_rows(loop, draw)
    _sum_of(module, draw, lambda terms, whole: whole * loop.ranks)
    return [name, name.rpartition(".")[0]]  # where its output is summed


@fault("tensor bias", _cut, _OUTPUT, "K")
def bias_of_each(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Each rank adds the bias before the sum."""
    name, module = _by_rows(loop, draw)
    bias: Any = module.bias
    _sum_of(module, draw, lambda terms, whole: whole + (loop.ranks - 1) * bias)
    return [name, name.rpartition(".")[0]]  # where its output is summed


@fault("tensor permuted", _cut, _OUTPUT, "XWR")
def permuted_shard(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The last rank's part of a weight has its rows in another order."""
    name, module = _by_columns(loop, draw)
    last = loop.rank == loop.ranks - 1
    seed = draw.mutant.seed

    def change(value: Any) -> Any:
        own = value.to_local()
        order = torch.arange(own.shape[-1])
        order = permuted(order, random.Random(seed)) if last else order
        return DTensor.from_local(own[..., order], value.device_mesh, value.placements)

    replace_output(module, draw, change)
    return [name]


@fault("tensor input gradient", _cut, _GRADIENTS, "PR")
def unsummed_gradient(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The gradient of what a linear that is cut by columns is given stays each rank's own term."""
    name, module = _by_columns(loop, draw)

    def faulty(right: Forward) -> Forward:
        def forward(value: Any) -> Any:
            value = value.view_as(value)
            value.register_hook(_own)
            return right(value)

        return forward

    replace_forward(module, draw, faulty)
    return [name, name.rpartition(".")[0]]


@fault("tensor norm gradient", _cut_sequence, _GRADIENTS, "PR")
def unsummed_norm(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The gradient of a norm, which each rank has of its part of the sequence, is not summed."""
    name, module = _module(loop, draw, "norm")
    which = draw.rng.choice(("weight", "bias"))
    parameter: Any = getattr(module, which)
    parameter.register_hook(lambda gradient: _own(gradient) if draw.active else gradient)
    return [f"{name}.{which}"]


@fault("tensor stale", _cut, ("param_updated", "optim_state"), "SC")
def stale_shard(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The last rank's part of a weight is not stepped."""
    name, module = _by_columns(loop, draw)
    right = loop.update
    shard: Any = module.weight

    def update() -> None:
        before = shard.to_local().detach().clone()
        right()
        if draw.active and loop.rank == loop.ranks - 1:
            with torch.no_grad():
                shard.to_local().copy_(before)

    loop.update = update  # type: ignore[method-assign]
    return [f"{name}.weight"]
