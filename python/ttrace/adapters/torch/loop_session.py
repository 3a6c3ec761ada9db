"""The session of a torch loop: what it records is held until an iteration's gradients are complete.

A record states the size of the global batch, which in such a loop is known only once the optimizer
steps: the loop calls the model as often as it likes. Until then the writer holds records, in order
(TraceWriter::Hold); nothing is copied for it here. What the step leaves is written at once, behind
them.

A loop may call backward() several times on one graph. What arrives at a tensor then are terms of
one gradient, and the writer adds them: the record is the gradient of the sum of the losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ttrace.adapters.torch.declared import Declared
from ttrace.adapters.torch.dtensors import (
    Unplaceable,
    dtensor_placements,
    is_dtensor,
    local_tensor,
    rows_cut,
    without_rows,
)
from ttrace.adapters.torch.held_records import PlacedLater
from ttrace.adapters.torch.iteration import LoopIteration
from ttrace.adapters.torch.topology import Topology
from ttrace.capture.placed import Moment
from ttrace.capture.recorder import record_of
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings


class Local(NamedTuple):
    """What a rank holds of a tensor, where that lies, and the shape of the whole; None:
    `placements` say it."""

    tensor: torch.Tensor
    placements: str
    whole: tuple[int, ...] | None


class LoopSession(Session):
    """Takes DTensors too: what is recorded of one is its local tensor, and its placements are those
    that it has at that moment."""

    now: LoopIteration

    def __init__(self, settings: Settings, declared: Declared | None = None) -> None:
        """`declared`: where plain tensors lie."""
        super().__init__(settings, LoopIteration(0, settings.leg))
        self.declared = declared
        self.topology = Topology()

    def start_on(self, topology: Topology, adapter: dict[str, Any]) -> None:
        """Opens the rank's trace."""
        self.topology = topology
        size, coordinate = topology.size, topology.coordinate
        mesh, place = list(size.items()), list(coordinate.values())
        self.start(topology.rank, topology.world_size, mesh, place, adapter)

    @property
    def due(self) -> bool:
        """Whether the current iteration is to be captured."""
        return not self.over and self.iteration in self.settings.iterations

    def batch_that_records_state(self, moment: Moment) -> tuple[int, int]:
        """Rows of one micro-batch: how many there are is known when they are released."""
        return moment.batch.micro_batch_size, self.now.micro_batches.batch_of(moment)

    def record_at(self, place: Place, tensor: torch.Tensor) -> None:
        if place.pass_ == "backward" and place.rule.grad_unknown:
            self.not_recorded(place.fqn, place.role, place.arg, place.rule.grad_unknown)
        elif is_dtensor(tensor) or _is_unknown(place.placements):
            if place.pass_ != "recompute" or not self.now.recomputes_again:
                rows, batch = self.batch_that_records_state(place.moment)
                self.record(**record_of(place, tensor, rows), batch=batch)
        else:
            self._hold()
            super().record_at(place, tensor)

    def spec_of(self, place: Place, tensor: torch.Tensor, whole: int) -> Any | None:
        """The Spec of a plain tensor whose batch dimension has `whole` rows in another run."""
        return self.specs.get(
            place.fqn,
            place.role,
            place.arg,
            tensor,
            place.rule.placements,
            batch_dim=place.rule.batch_dim,
            batch_global=whole,
            scale=place.moment.batch.grad_scale if place.pass_ == "backward" else (1, 1),
            whole=place.rule.whole,
        )

    def record(
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
        *,
        always: bool = False,
        **where: Any,
    ) -> None:
        """As Session.record. `batch_global` counts the rows of one micro-batch."""
        if not self.recording:
            return
        if not always and not self.selected(fqn, role, where.get("micro_batch", -1)):
            return
        try:
            local = self.local(tensor, placements, where.get("batch_dim", -1))
        except Unplaceable as reason:
            self.not_recorded(fqn, role, arg, str(reason))
            return
        self._hold()
        tensor, placements = local.tensor, local.placements
        if local.whole is not None:
            where["whole"] = local.whole
        if _is_unknown(placements):
            like = torch.empty_like(tensor, device="meta", requires_grad=False)
            later = PlacedLater(fqn, role, arg, like, placements, where)
            self.now.records.placed_later.append(later)
            placements = ""
        super().record(fqn, role, arg, tensor, placements, always=True, **where)

    def _hold(self) -> None:
        """From the first record of an iteration on, until `release`."""
        records = self.now.records
        if self.recording and not records.begun and not records.released:
            records.begin()
            self.writer.hold()

    def local(self, tensor: torch.Tensor, placements: str, batch_dim: int = -1) -> Local:
        """The local tensor, and for a DTensor its own placements in place of the expected ones of
        its mesh dimensions. A cut through the batch is said by rows, not by a placement. Raises
        Unplaceable."""
        if not is_dtensor(tensor):
            return Local(tensor, placements, None)
        own = {name for names in self.topology.dims_of(tensor.device_mesh) for name in names}
        others = [word for word in placements.split() if word.partition(":")[0] not in own]
        text = " ".join([*others, dtensor_placements(tensor, self.topology)]).strip()
        return Local(local_tensor(tensor), without_rows(text, batch_dim), tuple(tensor.shape))

    def release(self) -> None:
        """Writes what is held, once all micro-batches were seen."""
        records, parts = self.now.records, self.topology.batch_parts
        if records.are_held:
            for later in records.placed_later:
                self._place(later, records.lies[later.word])
            self.writer.release([count * parts for count in self.now.micro_batches.counts()])
        records.end()

    def drop(self) -> None:
        """What is held of this leg is no part of the trace."""
        records = self.now.records
        if records.are_held:
            self.writer.drop()
        records.end()

    @contextmanager
    def rerun(self, leg: str) -> Iterator[list[str]]:
        """What the leg has not released is dropped."""
        with super().rerun(leg) as failures:
            try:
                yield failures
            finally:
                self.drop()

    def _place(self, later: PlacedLater, words: str | None) -> None:
        """Says where an input of the model lies, which was not known when it was recorded. If no
        DTensor was made of it, all ranks should have the same: the check compares the copies."""
        if words is None:
            if self.once("presumed_alike", later.fqn, later.role, later.arg):
                self.note("presumed_alike", fqn=later.fqn, role=later.role, arg=later.arg)
            return
        batch_dim = later.where.get("batch_dim", -1)
        placements = without_rows(words, batch_dim)
        if placements != words:
            later.cut(*rows_cut(words, batch_dim, self.topology))
        self.amend(later.fqn, later.role, later.arg, later.like, placements, **later.where)

    def not_observed(self, fqn: str, kind: str, reason: str) -> None:
        """Once for each name and reason."""
        if self.recording and self.once("not_observed", fqn, reason):
            self.note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})

    def not_grafted(self, what: str, fqn: str, reason: str, way_out: str) -> None:
        """Once for each name and iteration."""
        if self.recording and self.once("not_grafted", what, fqn, str(self.iteration)):
            self.note(
                "not_grafted",
                what=what,
                fqn=fqn,
                iteration=self.iteration,
                reason=reason,
                way_out=way_out,
            )


def _is_unknown(placements: str) -> bool:
    """Whether a word stands for them, see Provenance."""
    return placements.startswith("?")
