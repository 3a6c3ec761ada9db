"""What is known of the records of one iteration that are held until its global batch is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class PlacedLater:
    """The record of a model's input, of which only the model says where it lies. Its shape and
    dtype are those of `like`, which has no memory."""

    fqn: str
    role: str
    arg: str
    like: torch.Tensor
    word: str  # stands for its placements
    where: dict[str, Any]  # as Recorder.record takes it

    def cut(self, pieces: int, index: int) -> None:
        """What the model was given are its micro-batch's rows, and this rank has some of them."""
        count = self.like.shape[self.where["batch_dim"]]
        rows = self.where["batch_global"] = count * pieces
        self.where["row_begin"] = self.where["micro_batch"] * rows + index * count


class HeldRecords:
    """They are from the first on until they are released. What comes later is not."""

    def __init__(self) -> None:
        self.begun = False
        self.released = False
        # Placements of the model's inputs, by the word that stands for them in records. Known as
        # soon as the model makes a DTensor of one.
        self.lies: dict[str, str | None] = {}
        self.placed_later: list[PlacedLater] = []

    @property
    def are_held(self) -> bool:
        return self.begun and not self.released

    def begin(self) -> None:
        self.begun = True

    def end(self) -> None:
        self.placed_later.clear()
        self.lies.clear()
        self.released = True
