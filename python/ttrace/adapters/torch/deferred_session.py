"""A session that writes an iteration's records when the iteration is over.

A record states the size of the global batch, which in a plain torch loop is known only once the
optimizer steps: the loop calls the model as often as it likes. Until then records wait in memory,
in order, as copies on the host. That is one iteration's activations and gradients. What the step
leaves is written at once, behind them.

A loop may call backward() several times on one graph. What arrives at a tensor then are terms of
one gradient, and they are added: the record is the gradient of the sum of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ttrace.adapters.torch.topology import (
    Topology,
    Unplaceable,
    dtensor_placements,
    is_dtensor,
    local_tensor,
    rows_cut,
    without_rows,
)
from ttrace.capture.placed import Batch
from ttrace.capture.rewrite import Place
from ttrace.capture.session import NO_MEMORY, Session
from ttrace.capture.settings import Settings
from ttrace.capture.tensor_bytes import has_memory

_ADDED = ("grad_input", "grad_output", "loss")


@dataclass
class _Waiting:
    fqn: str
    role: str
    arg: str
    tensor: torch.Tensor
    placements: str
    rows: int  # of one micro-batch
    rest: dict[str, Any]


class DeferredSession(Session):
    """Takes DTensors too: what is recorded of one is its local tensor, and its placements are those
    that it has at that moment."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.topology = Topology()
        self.checkpoints = 0  # that the forward which runs is inside of, but for reentrant ones
        self._waiting: list[_Waiting] = []
        self._sums: dict[tuple[Any, ...], _Waiting] = {}
        self._batch: Batch | None = None  # of what `record_at` records now
        self._released = False  # all that waited in this iteration is written
        # Placements of the model's inputs, by the word that stands for them in records. Known as
        # soon as the model makes a DTensor of one.
        self.lies: dict[str, str | None] = {}

    @property
    def due(self) -> bool:
        """Whether the current iteration is to be captured."""
        return not self.over and self.iteration in self.settings.iterations

    def record_at(self, place: Place, tensor: torch.Tensor) -> None:
        if place.pass_ == "backward" and place.rule.grad_unknown:
            self.not_recorded(place.fqn, place.role, place.arg, place.rule.grad_unknown)
            return
        self._batch = place.moment.batch
        try:
            super().record_at(place, tensor)
        finally:
            self._batch = None

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

    def _in_slot(self, place: Place, tensor: torch.Tensor) -> bool:
        return False  # it waits, most of the time

    def record(  # type: ignore[override]
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
        *,
        rows: int = 0,
        **rest: Any,
    ) -> None:
        """`rows`: of one micro-batch, for what has a batch dimension."""
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
        if self._released:
            super().record(fqn, role, arg, tensor.detach(), placements, **rest)
            return
        if tensor.layout is torch.strided:
            if not has_memory(tensor):
                self.not_recorded(fqn, role, arg, NO_MEMORY)
                return
            tensor = tensor.detach()
            tensor = tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()
        if self._batch is not None:
            rows = self._batch.micro_batch_size
        item = _Waiting(fqn, role, arg, tensor, placements, rows, rest)
        if role in _ADDED:
            names = ("call", "pass_", "micro_batch")
            key = (fqn, role, arg, tensor.shape, *(rest.get(name) for name in names))
            before = self._sums.setdefault(key, item)
            if before is not item:
                before.tensor = before.tensor + tensor
                return
        self._waiting.append(item)

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

    def release(self, micro_batches: int) -> None:
        """Writes what waited. `micro_batches` is their number in the global batch."""
        waiting, self._waiting = self._waiting, []
        self._sums.clear()
        for item in waiting:
            if item.placements in self.lies:
                self._place(item)
            if item.rest.get("batch_dim", -1) >= 0:
                item.rest["batch_global"] = micro_batches * item.rows
            super().record(item.fqn, item.role, item.arg, item.tensor, item.placements, **item.rest)
        self.lies.clear()
        self._released = True

    def seal(self, iteration: int, leg: str) -> None:
        super().seal(iteration, leg)
        self._released = False

    def _place(self, item: _Waiting) -> None:
        """Says where an input of the model lies, which was not known when it was recorded. If no
        DTensor was made of it, all ranks should have the same: the check compares the copies."""
        words = self.lies[item.placements]
        if words is None:
            words = ""
            if not self.said("presumed_alike", item.fqn, item.role, item.arg):
                self.note("presumed_alike", fqn=item.fqn, role=item.role, arg=item.arg)
        dim = item.rest.get("batch_dim", -1)
        item.placements = without_rows(words, dim)
        if item.placements != words:
            pieces, index = rows_cut(words, dim, self.topology)
            count = item.tensor.shape[dim]
            item.rows = count * pieces
            item.rest["row_begin"] = item.rest["micro_batch"] * item.rows + index * count

    def not_observed(self, fqn: str, kind: str, reason: str) -> None:
        """Once for each name and reason."""
        if self.recording and not self.said("not_observed", fqn, reason):
            self.note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})

    def not_grafted(self, what: str, fqn: str, reason: str, way_out: str) -> None:
        """Once for each name and iteration."""
        if self.recording and not self.said("not_grafted", what, fqn, str(self.iteration)):
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
            self._waiting.clear()
            self._sums.clear()
