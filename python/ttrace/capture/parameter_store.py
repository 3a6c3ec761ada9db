"""Where a framework keeps parameters, their gradients and the state of its optimizer.

What an adapter says of it: which pieces this rank holds, where each lies in the whole tensor, and
when. DistributedDataParallel holds whole local tensors; a distributed optimizer holds a flat range
of the reduced gradient and of the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

from ttrace import _native
from ttrace.capture.placed import Box, Scale

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Part:
    """A flat run of the elements of a local tensor, in row-major order: which one begins it, and of
    what shape."""

    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Of a parameter, of its gradient or of a state of its optimizer. `placements`, `scale` and
    `reduced_over` as in the trace. `part`: the tensor is one-dimensional, and this part of what the
    placements give this rank. `whole`: see SpecCache.get."""

    fqn: str
    tensor: torch.Tensor
    placements: str = ""
    scale: Scale = (1, 1)
    reduced_over: tuple[str, ...] = ()
    part: Part | None = None
    whole: tuple[int, ...] | None = None

    def boxes(self) -> Iterator[tuple[torch.Tensor, Box | None]]:
        """What is recorded of it: a flat run is several boxes of the local tensor."""
        if self.part is None:
            yield self.tensor, None
            return
        begin, end = self.part.begin, self.part.begin + self.tensor.numel()
        for offset, box in _native.boxes_of_range(self.part.shape, begin, end):
            sizes = [size for _, size, _ in box]
            yield self.tensor.narrow(0, offset - begin, prod(sizes)).view(sizes), tuple(box)


class ParameterStore(Protocol):
    """All of it on this rank, of the current leg and iteration. What cannot be placed the store
    notes itself, and leaves out."""

    def begin(self) -> None:
        """A captured iteration, or a rerun of one, begins."""

    def gradients(self) -> Iterable[tuple[str, torch.Tensor | None]]:
        """The tensors in which gradients lie when they are reduced."""

    def found_gradients(self) -> Mapping[str, torch.Tensor | None]:
        """See capture/found_gradients.py: of each parameter, what its gradient held before the
        iteration's own backward added to it."""

    def local_gradients(self) -> Iterable[Piece]:
        """Before any reduction, as backward left them: those not given out before."""

    def note_parts(self) -> None:
        """See capture/gradient_parts.py: of the local gradients given out."""

    def reduced_gradients(self) -> Iterable[Piece]:
        """As the optimizer finds them, before clipping: those not given out before."""

    def states(self) -> Iterable[tuple[str, Piece]]:
        """What the optimizer's step reads and writes, by name: "updated" (the model's own
        parameter), "master" (what is stepped in its place), "exp_avg" and the like."""

    def parameters_used(self) -> Iterable[Piece]:
        """Those that the forward reads, where nothing but the loop changes them until the step."""

    def states_beside(self) -> Iterable[tuple[str, Piece]]:
        """What else an optimizer keeps, under names of its own: looked at, not recorded."""

    def reduction_order(self) -> Sequence[str]:
        """Names in the order in which local gradients were given out."""

    def write_back(self) -> None:
        """Parameters were overwritten: what the optimizer holds in their place follows."""
