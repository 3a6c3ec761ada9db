"""One prepared slot for each input, output and gradient of a module: a record of it is a comparison
with what it was last time, and one native call."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch

from ttrace.capture.placed import Batch, TensorRule
from ttrace.capture.rewrite import Place

Strides = tuple[int, ...]


class Slot:
    """What is the same for all records of one place, as long as rule, batch, shape and dtype are.
    Names and placements are resolved: `spec` is the native Spec."""

    __slots__ = (
        *("batch", "bytes", "dtype", "fp32_bytes", "needs_values", "rule", "shape", "spec"),
        "strides",
    )

    def __init__(self, place: Place, tensor: torch.Tensor, spec: Any, needs_values: bool) -> None:
        """`tensor` as the module has it. `needs_values`: so that a noise leg keeps them."""
        self.rule: TensorRule = place.rule
        self.batch: Batch = place.moment.batch
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.spec = spec
        self.needs_values = needs_values
        self.bytes, self.fp32_bytes = sizes(tensor)
        self.strides = _canonical_strides(place.rule, tensor.dim())

    def fits(self, place: Place, tensor: torch.Tensor) -> bool:
        if self.dtype is not tensor.dtype or self.shape != tensor.shape:
            return False
        # By identity first: equal ones are made anew by some adapters.
        rule, batch = place.rule, place.moment.batch
        if self.rule is not rule and self.rule != rule:
            return False
        if self.batch is not batch:
            if self.batch != batch:
                return False
            self.batch = batch
        return True


def sizes(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes, and those that a leg in fp32 has in its place."""
    size = tensor.numel() * tensor.element_size()
    return size, 4 * tensor.numel() if tensor.is_floating_point() else size


def may_have_slot(tensor: torch.Tensor) -> bool:
    """Whether memory and strides say all there is of it. Not of classes that wrap a tensor, nor of
    values that torch negates or conjugates when they are read."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _canonical_strides(rule: TensorRule, dims: int) -> Callable[[Strides], Strides]:
    """As TensorRule.canonical() makes them, without a view."""
    order = rule.order
    if rule.rows:
        rows, permuted = rule.rows, order or tuple(range(dims + 1))

        def of_rows(strides: Strides) -> Strides:
            split = (strides[0] * rows, *strides)
            return tuple(split[dim] for dim in permuted)

        return of_rows
    if order is None:
        return _as_they_are
    return itemgetter(*order) if len(order) > 1 else _as_they_are


def _as_they_are(strides: Strides) -> Strides:
    return strides
