"""Records of one iteration that wait until it is known how large its global batch is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ttrace.capture.placed import Moment

_ADDED = ("grad_input", "grad_output", "loss")


@dataclass
class WaitingRecord:
    fqn: str
    role: str
    arg: str
    tensor: torch.Tensor
    placements: str
    rows: int  # of one micro-batch
    moment: Moment | None  # of the forward that it belongs to, if it is of one
    rest: dict[str, Any]

    @property
    def batch_dim(self) -> int:
        return self.rest.get("batch_dim", -1)

    def place(self, placements: str) -> None:
        self.placements = placements

    def cut(self, pieces: int, index: int) -> None:
        """What the model was given are its micro-batch's rows, and this rank has some of them."""
        count = self.tensor.shape[self.batch_dim]
        self.rows = count * pieces
        self.rest["row_begin"] = self.rest["micro_batch"] * self.rows + index * count

    def add(self, term: torch.Tensor) -> None:
        self.tensor = self.tensor + term

    def complete(self, micro_batches: int) -> None:
        """`micro_batches`: their number in the global batch."""
        if self.batch_dim >= 0:
            self.rest["batch_global"] = micro_batches * self.rows


class WaitingRecords:
    """In order, until they are released. What comes later does not wait."""

    def __init__(self) -> None:
        self.released = False
        # Placements of the model's inputs, by the word that stands for them in records. Known as
        # soon as the model makes a DTensor of one.
        self.lies: dict[str, str | None] = {}
        self._waiting: list[WaitingRecord] = []
        self._sums: dict[tuple[Any, ...], WaitingRecord] = {}

    def add(self, record: WaitingRecord) -> None:
        """Terms of one gradient are added up: the loop called backward several times."""
        if record.role in _ADDED:
            names = ("call", "pass_", "micro_batch")
            where = (record.rest.get(name) for name in names)
            key = (record.fqn, record.role, record.arg, record.tensor.shape, *where)
            first = self._sums.setdefault(key, record)
            if first is not record:
                first.add(record.tensor)
                return
        self._waiting.append(record)

    def release(self) -> Iterator[WaitingRecord]:
        waiting, self._waiting = self._waiting, []
        self._sums.clear()
        yield from waiting
        self.lies.clear()
        self.released = True

    def drop(self) -> None:
        self._waiting.clear()
        self._sums.clear()
