"""What a forward of an iteration was given beside the loop's own arguments, so that it can be given
the same again."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ttrace.adapters.torch.fed_rows import Placed


@dataclass(frozen=True)
class SeenForward:
    rows: int
    begins: bool  # a micro-batch
    place: tuple[int, int]  # of its micro-batch, see micro_batches.py
    replaced: dict[str, torch.Tensor]  # what it got in place of its own arguments, by name
    placed: Placed | None  # where the reference has its rows; None: at the same place
