"""Where a framework keeps parameters, their gradients and the state of its optimizer.

What an adapter says of it: which pieces this rank holds, where each lies in the whole tensor, and
when. DistributedDataParallel holds whole local tensors; a distributed optimizer holds a flat range
of the reduced gradient and of the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ttrace.capture.placed import Scale

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Piece:
    """Of a parameter, of its gradient or of a state of its optimizer. `placements`, `scale` and
    `reduced_over` as in the trace."""

    fqn: str
    tensor: torch.Tensor
    placements: str = ""
    scale: Scale = (1, 1)
    reduced_over: tuple[str, ...] = ()


class ParameterStore(Protocol):
    """All of it on this rank, of the current leg and iteration. What cannot be placed the store
    notes itself, and leaves out."""

    def begin(self) -> None:
        """A captured iteration, or a rerun of one, begins."""

    def gradients(self) -> Iterable[tuple[str, torch.Tensor | None]]:
        """The tensors in which gradients lie when they are reduced."""

    def local_gradients(self) -> Iterable[Piece]:
        """Before any reduction, as backward left them: those not given out before."""

    def reduced_gradients(self) -> Iterable[Piece]:
        """As the optimizer finds them, before clipping: those not given out before."""

    def reduction_order(self) -> Sequence[str]:
        """Names in the order in which local gradients were given out."""

    def write_back(self) -> None:
        """Parameters were overwritten: what the optimizer holds in their place follows."""
