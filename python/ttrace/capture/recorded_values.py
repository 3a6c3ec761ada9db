"""Tensors of a trace, read at this rank's place in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ttrace import _native

# Leg, fqn, role, iteration, call, arg, pass.
Where = tuple[str, str, str, int, int, str, str]


class Unreadable(Exception):
    """A tensor that is in the trace and cannot be had at this place; the message says why."""


class RecordedValues:
    """A trace as it was when this was made."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._trace: Any = _native.Reference(folder)

    @property
    def legs(self) -> list[str]:
        return self._trace.legs

    def has(self, where: Where) -> bool:
        return self._trace.find(*where)

    def global_shape(self, where: Where) -> list[int]:
        """Of the whole tensor; empty if there is none."""
        return self._trace.global_shape(*where)

    def copies_agree(self, where: Where) -> bool:
        """Whether the tensor is there, and the same in all micro-batches."""
        return self._trace.copies_agree(*where)

    def read(
        self, where: Where, spec: Any, row_begin: int, like: torch.Tensor
    ) -> torch.Tensor | None:
        """A new tensor of the shape, dtype and device of `like`: the part of the whole that `spec`
        says, from batch row `row_begin` on, in units of `spec`'s declared scale. None if the trace
        has no such tensor. Raises Unreadable, or OSError if a file cannot be read."""
        return self._filled(
            where, spec, like, lambda out: self._trace.read(*where, spec, row_begin, out)
        )

    @property
    def has_fed(self) -> bool:
        """Whether it says what its forwards were fed, row by row."""
        return self._trace.has_fed

    def place(self, is_data: bool, iteration: int, call: int, tensors: list[Any]) -> Any:
        """Where it has these rows: see the native Reference.place."""
        return self._trace.place(is_data, iteration, call, tensors)

    def read_placed(
        self, where: Where, spec: Any, rows: list[int], padded_at_begin: bool, like: torch.Tensor
    ) -> torch.Tensor | None:
        """As `read`, but row r is that of number `rows[r]` in the whole. `rows` is empty where the
        tensor has none."""
        return self._filled(
            where,
            spec,
            like,
            lambda out: self._trace.read_placed(*where, spec, rows, padded_at_begin, out),
        )

    def read_rows(
        self, where: Where, spec: Any, tokens: torch.Tensor, like: torch.Tensor
    ) -> torch.Tensor | None:
        """The same of a tensor whose rows are tokens that a router chose: those of these tokens."""
        return self._filled(
            where,
            spec,
            like,
            lambda out: self._trace.read_rows(*where, spec, tokens.data_ptr(), tokens.numel(), out),
        )

    def _filled(
        self, where: Where, spec: Any, like: torch.Tensor, read: Callable[[int], None]
    ) -> torch.Tensor | None:
        if spec is None or not self.has(where):
            return None
        value = torch.empty(like.shape, dtype=like.dtype, device="cpu")
        try:
            read(value.data_ptr())
        except _native.Error as error:
            if isinstance(error, OSError):
                raise
            raise Unreadable(str(error)) from None
        return value.to(like.device)
