"""How large the parts are that a rank's micro-batches add to the gradient of a parameter.

Each is rounded by itself, so that a gradient whose parts cancel is rounded as they are. Which they
were its sum does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ttrace.capture.found_gradients import what_it_holds
from ttrace.capture.note_lines import in_lines
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import on_host


class GradientParts:
    """Of the real leg of one iteration, by the names of parameters."""

    def __init__(self) -> None:
        # Of each part: its norm, its smallest and its largest element, on its device.
        self._sizes: dict[str, list[tuple[torch.Tensor, ...]]] = {}

    def add(self, fqn: str, part: torch.Tensor) -> None:
        """Nothing waits for what it finds."""
        norm = what_it_holds(part)
        if norm is not None and part.numel():
            ends = torch.aminmax(part.detach())
            self._sizes.setdefault(fqn, []).append((norm, ends.min, ends.max))

    def has(self, fqn: str) -> bool:
        return fqn in self._sizes

    def note(self, session: Session, names: Iterable[str]) -> None:
        """Of those of `names` that have any, which are done with."""
        sizes = {fqn: self._sizes.pop(fqn) for fqn in tuple(names) if fqn in self._sizes}
        told = on_host([value for parts in sizes.values() for part in parts for value in part])
        values = map(float, told)
        squares, largest = {}, {}
        for fqn, parts in sizes.items():
            found = [(next(values), next(values), next(values)) for _ in parts]
            square = sum(norm**2 for norm, _, _ in found)
            if math.isfinite(square):  # as JSON has numbers
                squares[fqn] = square
                largest[fqn] = sum(max(-low, high) ** 2 for _, low, high in found)
        for part in in_lines(list(squares)):
            session.note(
                "gradient_parts",
                iteration=session.iteration,
                squares={fqn: squares[fqn] for fqn in part},
                largest={fqn: largest[fqn] for fqn in part},
            )
