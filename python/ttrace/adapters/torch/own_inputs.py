"""The data of a loop that makes its batches by hand: the model's own inputs, and what the loop
compares its output with.

On a device mesh inputs may be parts of a batch, which the model itself says when it makes DTensors
of them: too late to replace them, in time to see whether they are the reference's.
"""

from __future__ import annotations

from typing import Any

import torch

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.data_items import Item, OwnInput
from ttrace.adapters.torch.data_records import note_fed, note_target, record_tensor
from ttrace.adapters.torch.dtensors import is_dtensor
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.reference_data import ReferenceData
from ttrace.capture.placed import Moment
from ttrace.capture.tensor_bytes import bitwise_equal

_TARGET_LIES_SOMEWHERE = "where it lies on the mesh that the loop has given is not said"


class OwnInputs:
    """Of loops without a loader."""

    def __init__(self, session: LoopSession, reference: ReferenceData) -> None:
        self._session = session
        self._reference = reference

    def forward(
        self,
        arguments: dict[str, Any],
        tensors: dict[str, torch.Tensor],
        rows: int,
        moment: Moment | None,
    ) -> dict[str, torch.Tensor]:
        """The inputs of one forward are the item. Returns what replaces them. `moment`: of the
        forward, if it is one of several models'."""
        session, in_use = self._session, self._session.now.data
        if moment is None:
            use = in_use.use_inputs()
        else:
            use = in_use.use_of(moment, session.topology.batch_parts)
        own = {
            name: value
            for name, value in tensors.items()
            if not is_dtensor(value) and not value.requires_grad
        }
        # A list that holds rows is known by its items, in whatever order.
        read = [one for one in fed_rows.fed(arguments) if one.arg in own or one.arg not in tensors]
        item = Item(rows, own, read, use=use)
        note_fed(session, item.fed, use, rows)
        on_mesh = session.topology.cuts_tensors
        for name, value in own.items():
            word = self._lies(name, value)
            record_tensor(session, rows, use, name, value, word)
            if self._reference.data is not None and on_mesh:
                in_use.own_inputs.append(OwnInput(name, value.detach().clone(), rows, use, word))
        if self._reference.data is None or on_mesh:
            return {}
        if not own or self._reference.keeps_rows(item, use, is_sure=True):
            return {}
        values = self._reference.whole(item, use)
        if values is None:
            return {}
        replaced = {
            name: value for name, value in values.items() if not bitwise_equal(value, own[name])
        }
        in_use.without_target.update(replaced)
        return replaced

    def _lies(self, name: str, value: torch.Tensor) -> str:
        """Placements of an argument of the model, or the word that stands for them."""
        declared = self._session.topology.declared
        if declared is not None:
            return declared.words("", name, value.dim())
        return self._session.now.placements_of_argument(value)

    def compare(self) -> None:
        """Says which inputs of the iteration that kept their own values differ from the
        reference's. Before the session forgets where they lie."""
        for own in self._session.now.data.own_inputs:
            self._compare(own)

    def _compare(self, own: OwnInput) -> None:
        lies = self._session.now.records.lies
        words = own.word if self._session.topology.declared else lies.get(own.word)
        other = self._reference.value(own.rows, own.use, own.name, own.value, words or "")
        if other is own.value or bitwise_equal(other, own.value):
            return
        self._session.not_grafted(
            "data",
            own.name,
            "where an input lies on the device mesh is not known"
            if words is None
            else "where an input lies on the device mesh is known only after it was used",
            "give both runs the same batches",
        )

    def target(self, target: torch.Tensor) -> torch.Tensor | None:
        """What a loss function gets in place of its target."""
        session, in_use = self._session, self._session.now.data
        if in_use.index < 0 or not session.due:
            return None
        if is_dtensor(target) or target.requires_grad:
            return None
        if session.topology.declared is not None:
            session.not_recorded("data", "data", "target", _TARGET_LIES_SOMEWHERE)
            return None
        use = in_use.use_target()
        rows = target.shape[0] if target.dim() > 0 else None
        note_target(session, target, use)
        record_tensor(session, rows, use, "target", target, "")
        if self._reference.data is None or session.topology.cuts_tensors:
            return None
        if not in_use.without_target:
            return None  # of rows that are the reference's it is so, too, or the check says it
        other = self._reference.value(rows, use, "target", target)
        in_use.without_target.clear()
        return None if other is target or bitwise_equal(other, target) else other

    def loss_is_made_inside(self) -> None:
        """The model puts out a loss: what it is compared with is one of the model's inputs."""
        self._session.now.data.without_target.clear()

    def note_missing_target(self) -> None:
        """Of a micro-batch whose inputs were replaced and whose targets were not seen."""
        without = self._session.now.data.without_target
        if without:
            self._session.not_grafted(
                "data",
                "target",
                f"rows of {', '.join(sorted(without))} are not the reference's and"
                " were replaced by its rows, but what the model's output is compared with was not"
                " seen",
                "give both runs the same batches, or read them through a DataLoader",
            )
        without.clear()
