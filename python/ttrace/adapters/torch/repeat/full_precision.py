"""An fp32 leg of a plain torch loop: autocast does nothing, and parameters in low precision are
swapped for fp32 copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.repeat.swapped_parameters import LOW
from ttrace.adapters.torch.repeat.tape import Event
from ttrace.capture.legs import Refusal


class FullPrecision:
    """Of one iteration."""

    def __init__(self, model: AttachedModel) -> None:
        self._model = model
        self._autocast = False
        self.is_on = False

    def look(self, events: Sequence[Event]) -> None:
        """What the iteration did."""
        self._autocast = any(event.ambient.in_low_precision for event in events)

    def refusal(self) -> Refusal | None:
        if self._autocast or self._model.is_low_precision():
            return None
        return Refusal("the run is fp32 already", expected=True)

    def added_bytes(self) -> int:
        """Of fp32 copies."""
        return sum(4 * p.numel() for p in self._model.root.parameters() if p.dtype in LOW)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, calls are made in fp32."""
        self.is_on = True
        try:
            with _without_autocast():
                yield
        finally:
            self.is_on = False


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Models and frameworks enter it by themselves."""
    original = torch.set_autocast_enabled

    def off(*arguments: Any) -> None:
        original(*arguments[:-1], False)

    torch.set_autocast_enabled = off  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.set_autocast_enabled = original
