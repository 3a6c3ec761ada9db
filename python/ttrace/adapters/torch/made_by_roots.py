"""What the roots of an iteration have put out, and another is given: no data of the loop's.

Where a loop calls several models, one gets what another has made (a generated picture, the scores
of a teacher). Its values are computed, so that two honest runs round them otherwise, and its rows
are those of the forward that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ttrace.adapters.torch.fed_rows import Fed
from ttrace.adapters.torch.repeat.followed_memory import FollowedMemory
from ttrace.capture.nested import named_tensors


class MadeByRoots:
    """In one iteration. Not thread-safe: of the thread that trains."""

    def __init__(self) -> None:
        self._memory = FollowedMemory()
        self._rows: list[list[Fed]] = []  # of each forward

    def forward(self, rows: list[Fed]) -> None:
        """One begins, of these rows."""
        self._rows.append(rows)

    def made(self, tensors: Iterable[torch.Tensor], in_forward: bool) -> None:
        """By the forward that has begun last, or by a call that is none."""
        for tensor in tensors:
            self._memory.add(tensor, len(self._rows) - 1 if in_forward else -1)

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether it is one of those, or was computed of them with gradients."""
        return tensor.grad_fn is not None or self._memory.slot(tensor) is not None

    def rows_of(self, arguments: Mapping[str, Any]) -> list[Fed]:
        """Of the forward that made one of these, if one did, by the name that it has here."""
        for argument, value in arguments.items():
            for name, tensor in named_tensors(value, argument):
                slot = self._memory.slot(tensor)
                rows = self._rows[slot] if slot is not None and slot >= 0 else []
                for one in rows:
                    if one.dim == 0 and one.rows == tensor.shape[:1].numel():
                        return [one._replace(arg=name)]
        return []
