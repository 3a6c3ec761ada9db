"""Whether an iteration leaves the parameters alone until an optimizer steps.

A leg computes with the memory of the parameters. What changes them in a forward or a backward (a
hook that steps by hand, weights that are kept within a norm) would do so once more in each leg, and
training would go on with what it left.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn.parameter import is_lazy

from ttrace.adapters.torch.seen_gradients import summary_of
from ttrace.capture.tensor_bytes import on_host, unwrapped


class Unchanged:
    """Of one iteration. Made before its first forward; not thread-safe."""

    def __init__(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._seen = [(name, p, _summary(p)) for name, p in parameters if not is_lazy(p)]
        self._problem = ""

    def step_begins(self, parameters: Iterable[torch.Tensor]) -> None:
        """Of an optimizer that steps these before the iteration is run again."""
        self._look()
        stepped = {id(parameter) for parameter in parameters}
        self._seen = [seen for seen in self._seen if id(seen[1]) not in stepped]

    def problem(self) -> str:
        """Why the iteration cannot be run again, or nothing. Waits for the device."""
        self._look()
        return self._problem

    def _look(self) -> None:
        differs = on_host([(before != _summary(p)).any() for _, p, before in self._seen])
        changed = [name for (name, _, _), is_so in zip(self._seen, differs, strict=True) if is_so]
        if changed and not self._problem:
            self._problem = f"{changed[0]} is changed before the step of its optimizer"


def _summary(parameter: torch.Tensor) -> torch.Tensor:
    return summary_of(unwrapped(parameter).detach())
