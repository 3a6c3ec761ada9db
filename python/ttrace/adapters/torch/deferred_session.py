"""A session that writes an iteration's records when the iteration is over.

A record states the size of the global batch, which in a plain torch loop is known only once the
optimizer steps: the loop calls the model as often as it likes. Until then records wait in memory,
in order, as copies on the host. That is one iteration's activations and gradients. What the step
leaves is written at once, behind them.

A loop may call backward() several times on one graph. What arrives at a tensor then are terms of
one gradient, and they are added: the record is the gradient of the sum of the losses.
"""

from __future__ import annotations

from typing import Any

import torch

from ttrace.adapters.torch.iteration import LoopIteration
from ttrace.adapters.torch.topology import (
    Topology,
    Unplaceable,
    dtensor_placements,
    is_dtensor,
    local_tensor,
    rows_cut,
    without_rows,
)
from ttrace.adapters.torch.waiting_records import WaitingRecord
from ttrace.capture.placed import Moment
from ttrace.capture.recorder import NO_MEMORY, record_of
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings
from ttrace.capture.tensor_bytes import has_memory


class DeferredSession(Session):
    """Takes DTensors too: what is recorded of one is its local tensor, and its placements are those
    that it has at that moment."""

    now: LoopIteration

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, LoopIteration(0, settings.leg))
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

    def record_at(self, place: Place, tensor: torch.Tensor) -> None:
        if place.pass_ == "backward" and place.rule.grad_unknown:
            self.not_recorded(place.fqn, place.role, place.arg, place.rule.grad_unknown)
            return
        if place.pass_ != "recompute" or not self.now.recomputes_again:
            rows, values = place.moment.batch.micro_batch_size, record_of(place, tensor)
            self.record(rows=rows, moment=place.moment, **values)

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
        )

    def record(  # type: ignore[override]
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
        *,
        rows: int = 0,
        moment: Moment | None = None,
        **rest: Any,
    ) -> None:
        """`rows`: of one micro-batch, for what has a batch dimension. `moment`: of the forward that
        it belongs to."""
        if not self.recording:
            return
        always = rest.get("always", False)
        if not always and not self.selected(fqn, role, rest.get("micro_batch", -1)):
            return
        try:
            tensor, placements = self.local(tensor, placements, rest.get("batch_dim", -1))
        except Unplaceable as reason:
            self.not_recorded(fqn, role, arg, str(reason))
            return
        records = self.now.records
        if records.released:
            super().record(fqn, role, arg, tensor.detach(), placements, **rest)
            return
        if tensor.layout is torch.strided:
            if not has_memory(tensor):
                self.not_recorded(fqn, role, arg, NO_MEMORY)
                return
            tensor = tensor.detach()
            tensor = tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
        records.add(WaitingRecord(fqn, role, arg, tensor, placements, rows, moment, rest))

    def local(
        self, tensor: torch.Tensor, placements: str, batch_dim: int = -1
    ) -> tuple[torch.Tensor, str]:
        """The local tensor, and for a DTensor its own placements in place of the expected ones of
        its mesh dimensions. A cut through the batch is said by rows, not by a placement."""
        if not is_dtensor(tensor):
            return tensor, placements
        others = [
            word
            for word in placements.split()
            if word.partition(":")[0] not in self.topology.tensor_dims
        ]
        text = " ".join([*others, dtensor_placements(tensor, self.topology)]).strip()
        return local_tensor(tensor), without_rows(text, batch_dim)

    def release(self) -> None:
        """Writes what waited, once all micro-batches were seen."""
        micro_batches = self.now.micro_batches
        records = self.now.records
        for item in records.release():
            if item.placements in records.lies:
                self._place(item, records.lies[item.placements])
            item.complete(micro_batches.count_of(item.moment) * self.topology.dp_size)
            super().record(item.fqn, item.role, item.arg, item.tensor, item.placements, **item.rest)

    def _place(self, item: WaitingRecord, words: str | None) -> None:
        """Says where an input of the model lies, which was not known when it was recorded. If no
        DTensor was made of it, all ranks should have the same: the check compares the copies."""
        if words is None:
            words = ""
            if self.once("presumed_alike", item.fqn, item.role, item.arg):
                self.note("presumed_alike", fqn=item.fqn, role=item.role, arg=item.arg)
        placements = without_rows(words, item.batch_dim)
        item.place(placements)
        if placements != words:
            item.cut(*rows_cut(words, item.batch_dim, self.topology))

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

    def stop(self, reason: str | BaseException) -> None:
        super().stop(reason)
        if self.over:
            self.now.records.drop()
