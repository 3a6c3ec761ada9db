"""Gradients whose reduction began before the backward of their chunk's last micro-batch did.

A correct overlap begins within that last backward. In which order the chunks of a rank run their
micro-batches is the schedule's affair, so each chunk is watched by itself: which of its forwards
had their backward begin, told by the gradient that arrives at the chunk's output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ttrace.capture import nested
from ttrace.capture.collectives import LONGEST_NAMES
from ttrace.capture.session import Session

if TYPE_CHECKING:
    from ttrace.adapters.megatron.model import Chunk, Model


@dataclass(frozen=True)
class _Reduction:
    """One that began when these forwards of the chunk had their backward begin."""

    chunk: Chunk
    parameters: tuple[str, ...]
    begun: frozenset[int]


class EarlyReductions:
    """Of the real leg of one iteration."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun: dict[int, set[int]] = {}  # id of a chunk -> its forwards
        self._reductions: dict[tuple[str, ...], _Reduction] = {}

    def forward_over(self, chunk: Chunk, output: Any) -> None:
        """The last forward of `chunk` made `output`."""
        if self._session.leg != "real":
            return
        begun, forward = self._begun.setdefault(id(chunk), set()), chunk.forwards - 1

        def arrived(gradient: torch.Tensor | None) -> None:
            begun.add(forward)

        for _, tensor in nested.outputs(output):
            if tensor.requires_grad:
                tensor.register_hook(self._session.guarded(arrived))

    def reducing(self, model: Model, parameters: Iterable[torch.Tensor]) -> None:
        """The reduction of their gradients begins. Only the first of an iteration counts: what is
        reduced again was reduced."""
        for chunk in model.chunks:
            own = {id(entry.original): entry.fqn for entry in chunk.parameters}
            names = tuple(own[id(p)] for p in parameters if id(p) in own)
            if names and names not in self._reductions:
                begun = frozenset(self._begun.get(id(chunk), ()))
                self._reductions[names] = _Reduction(chunk, names, begun)

    def write(self, model: Model) -> None:
        """All backwards are over. What never showed a backward (nothing of the chunk asks for
        gradients) is no evidence: only those count that were seen to begin later."""
        session = self._session
        for reduction in self._reductions.values():
            late = self._begun.get(id(reduction.chunk), set()) - reduction.begun
            if not late:
                continue
            names = reduction.parameters
            session.note(
                "reduced_early",
                iteration=session.iteration,
                parameters=list(names) if sum(map(len, names)) <= LONGEST_NAMES else [],
                micro_batch=max(reduction.begun, default=-1),
                micro_batches=len(self._begun[id(reduction.chunk)]),
                late=[model.micro_batch(forward) for forward in sorted(late)],
            )
        self._reductions.clear()
