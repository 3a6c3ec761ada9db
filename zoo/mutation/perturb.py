"""Changes of one tensor: an element, a row, or all of it, by a wanted relative size; a factor; its
values in another order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch


def perturbed(tensor: torch.Tensor, extent: str, size: float, rng: random.Random) -> torch.Tensor:
    """A changed copy. An element or a row moves by about `size` times the tensor's root mean
    square; all of it either does so too or is multiplied by 1 + `size`, which a gain always is."""
    # Gradients of attention are transposed views; a row is one in logical order.
    exact = tensor.detach().double().contiguous()
    scale = size * float(exact.square().mean().sqrt())
    change = torch.zeros_like(exact)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if extent == "element":
        flat = change.view(-1)
        flat[rng.randrange(flat.numel())] = scale * rng.choice((-1, 1))
    elif extent == "row":
        rows = change.view(-1, change.shape[-1] if change.dim() > 1 else 1)
        rows[rng.randrange(len(rows))] = scale * _normal(rows.shape[1], generator)
    elif extent == "gain" or (extent == "all" and rng.random() < 0.5):
        change = size * exact
    else:
        change = scale * _normal(exact.numel(), generator).view_as(exact)
    return (exact + change).to(tensor.dtype)


def permuted(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The same values in another order: every value by itself, or slices of the first dimension."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    right = tensor.detach().contiguous()
    if right.dim() > 1 and len(right) > 1 and rng.random() < 0.5:
        return right[torch.randperm(len(right), generator=generator)]
    order = torch.randperm(right.numel(), generator=generator)
    return right.view(-1)[order].view_as(right)


def _normal(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(count, generator=generator, dtype=torch.float64)


class FaultyGradient(torch.autograd.Function):
    """The identity, whose backward is not. A copy, because a module may write into its input."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, change: Callable[..., Any]) -> torch.Tensor:
        ctx.change = change
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.change(gradient), None


class SizeOfError:
    """Sums over all places of one fault on this rank: error and true value, squared."""

    def __init__(self) -> None:
        self.fired = 0
        self.error = self.truth = 0.0

    def add(self, wrong: torch.Tensor, right: torch.Tensor) -> None:
        wrong, right = wrong.detach().double(), right.detach().double()
        self.fired += 1
        self.error += float((wrong - right).square().sum())
        self.truth += float(right.square().sum())
