"""Faults of a module's own arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import honest.attention
from honest.attention import Block
from mutation.loops import tasks
from mutation.loops.inside import Forward, drawn, replace_forward, replace_output
from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions
from mutation.perturb import FaultyGradient, permuted, perturbed
from tensor_parallel_toy import Attention, FeedForward, Layer

_OUTPUT = ("output", "input")
_NORMS = (nn.LayerNorm, nn.BatchNorm2d)


def _any(options: LoopOptions) -> bool:
    return True


def _uncut(options: LoopOptions) -> bool:
    """Tensors are the module's own, not pieces."""
    return not options.tensor


def _of(*models: str) -> Callable[[LoopOptions], bool]:
    return lambda options: options.model in models


def _leaf(loop: PlainLoop, draw: Draw) -> tuple[str, nn.Module]:
    return drawn(loop, draw, nn.Linear, nn.Conv2d, nn.Embedding, *_NORMS)


def _output(loop: PlainLoop, draw: Draw, extent: str) -> Sequence[str]:
    """The error is the same in each call of the module."""
    name, module = _leaf(loop, draw)
    seed, size = draw.mutant.seed, draw.mutant.size

    def change(value: torch.Tensor) -> torch.Tensor:
        wrong = perturbed(value, extent, size, random.Random(seed))
        return value + (wrong - value.detach())

    replace_output(module, draw, change)
    return [name]


@fault("module gain", _uncut, _OUTPUT, "KR", one=True)
def gain(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """What a module puts out has a factor."""
    return _output(loop, draw, "gain")


@fault("module row", _uncut, _OUTPUT, "R", one=True)
def row(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One row of what a module puts out is wrong."""
    return _output(loop, draw, "row")


@fault("module gradient", lambda o: not o.tensor and o.model != "images",
       ("grad_input", "grad_output"), "KR", one=True)  # fmt: skip
def gradient(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The gradient of what a module is given has a factor."""
    found = [(n, m) for n, m in loop.net.named_modules() if isinstance(m, nn.Linear | nn.LayerNorm)]
    name, module = draw.rng.choice(found[1:])  # the first one may be given data
    factor = 1 + draw.mutant.size

    def faulty(right: Forward) -> Forward:
        def forward(value: torch.Tensor) -> Any:
            if value.requires_grad:
                value = FaultyGradient.apply(value, lambda arriving: arriving * factor)
            return right(value)

        return forward

    replace_forward(module, draw, faulty)
    return [name]


@fault("module permuted", _uncut, _OUTPUT, "XWR", one=True)
def weight_permuted(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Features of a linear come in another order."""
    name, module = drawn(loop, draw, nn.Linear)
    seed = draw.mutant.seed

    def change(value: torch.Tensor) -> torch.Tensor:
        order = permuted(torch.arange(value.shape[-1]), random.Random(seed))
        return value[..., order]

    replace_output(module, draw, change)
    return [name]


@fault("module dropout", _any, _OUTPUT, "HU", one=True)
def dropout(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A dropout that is never switched off, on what a linear puts out."""
    name, module = drawn(loop, draw, nn.Linear)
    replace_output(module, draw, lambda value: nn.functional.dropout(value, 0.1, training=True))
    return [name, name.rpartition(".")[0]]


@fault("module eps", _any, _OUTPUT, "K", one=True)
def norm_epsilon(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A norm has another epsilon."""
    name, module = drawn(loop, draw, *_NORMS)
    right, wrong = module.eps, draw.rng.choice((1e-3, 1e-6))

    def faulty(forward: Forward) -> Forward:
        def with_other(*args: Any, **kwargs: Any) -> Any:
            module.eps = wrong
            try:
                return forward(*args, **kwargs)
            finally:
                module.eps = right

        return with_other

    replace_forward(module, draw, faulty)
    return [name]


@contextmanager
def _other(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    right = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, right)


def _with_other(
    module: nn.Module, draw: Draw, owner: Any, name: str, made: Callable[[Any], Any]
) -> None:
    """While the module runs, what its code calls `owner.name` is `made` of what that was."""

    def faulty(right: Forward) -> Forward:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with _other(owner, name, made(getattr(owner, name))):
                return right(*args, **kwargs)

        return forward

    replace_forward(module, draw, faulty)


def _attention(loop: PlainLoop, draw: Draw, made: Callable[[Any], Any]) -> Sequence[str]:
    name, module = drawn(loop, draw, Attention, Block)
    owner: Any = honest.attention if isinstance(module, Block) else nn.functional
    _with_other(module, draw, owner, "scaled_dot_product_attention", made)
    return [name]


@fault("module scale", _of("language", "encoder"), _OUTPUT, "", one=True)
def attention_scale(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Scores are divided by the width of a head, not by its root."""

    def made(right: Any) -> Any:
        return lambda q, *rest, **named: right(q, *rest, **{**named, "scale": 1 / q.shape[-1]})

    return _attention(loop, draw, made)


@fault("module mask", _of("language", "encoder"), _OUTPUT, "", one=True)
def unmasked(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Attention to what is masked."""
    return _attention(loop, draw, lambda right: lambda q, k, v, **named: right(q, k, v))


@fault("module activation", _of("language", "encoder", "perceptron"), _OUTPUT, "", one=True)
def activation(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """GELU is approximated."""
    name, module = drawn(loop, draw, FeedForward, Block, tasks.Residual)

    def made(right: Any) -> Any:
        return lambda value, *rest, **named: right(value, approximate="tanh")

    if isinstance(module, FeedForward):
        _with_other(module.act, draw, nn.functional, "gelu", made)
        return [f"{name}.act"]
    owner: Any = honest.attention if isinstance(module, Block) else tasks
    _with_other(module, draw, owner, "gelu", made)
    return [name]


@fault("module residual", _of("language", "perceptron"), _OUTPUT, "PW", one=True)
def residual(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """What goes past the block is lost."""
    name, module = drawn(loop, draw, Layer, tasks.Residual)

    def faulty(right: Forward) -> Forward:
        if isinstance(module, Layer):
            return lambda hidden: module.ffn(
                module.ffn_norm(hidden + module.attention(module.attention_norm(hidden)))
            )
        return module.inner

    replace_forward(module, draw, faulty)
    return [name]


@fault("module pooling", _of("encoder"), _OUTPUT, "", one=True)
def pooled_padding(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The mean is that over padding, too."""
    net: Any = loop.net
    right = net.pool
    net.pool = lambda hidden, data: hidden.mean(1) if draw.here else right(hidden, data)
    return [""]


@fault("module detached", _uncut, ("grad_output", "grad_local", "grad_input", "grad_reduced"), "MZ")
def detached(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Nothing goes back through a norm into what came before it; its own gradients are right."""
    name, module = drawn(loop, draw, *_NORMS)

    def faulty(right: Forward) -> Forward:
        return lambda value: right(value * 0 + value.detach())

    replace_forward(module, draw, faulty)
    return [name, name.rpartition(".")[0], "*"]
