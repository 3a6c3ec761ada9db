"""Where the reference has the rows of this rank's data, and what it has there.

An item whose rows the reference has, in whatever order and however padded, keeps them: the check
maps rows by their contents. Only rows that the reference does not have are replaced, all tensors of
an item or none.
"""

from __future__ import annotations

from typing import Any

import torch

from ttrace.adapters.torch.data_items import Item, Use
from ttrace.adapters.torch.dtensors import rows_cut, without_rows
from ttrace.adapters.torch.fed_rows import Fed, Placed, Space
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.row_keeping import RowKeeping
from ttrace.adapters.torch.topology import Topology
from ttrace.capture.course import Course
from ttrace.capture.graft import Graft


class ReferenceData:
    """Of one run. Without a reference it has nothing."""

    def __init__(self, session: LoopSession, course: Course) -> None:
        self._session = session
        self._course = course
        self._keeping = RowKeeping(session)

    @property
    def graft(self) -> Graft | None:
        return self._course.graft

    @property
    def data(self) -> Graft | None:
        """The same, if data is taken from it."""
        graft = self.graft
        return graft if graft is not None and graft.data else None

    def place(self, is_data: bool, iteration: int, call: int, tensors: list[Fed]) -> Placed | None:
        """Where it has the rows of a forward, or of an item. None: nothing is taken from there, or
        it does not say what it was fed."""
        if self.graft is None:
            return None
        found = self.graft.place(is_data, iteration, call, tensors)
        if found is None:
            return None
        spaces, foreign, at_begin = found
        return Placed([Space(*space) for space in spaces], foreign, at_begin)

    def keeps_rows(self, item: Item, use: Use, is_sure: bool) -> bool:
        """Whether nothing is put in place of an item's rows: they are the reference's. `is_sure`:
        that they are used in this iteration."""
        assert self.graft is not None
        item.found = self._iteration_of(item, use, is_sure)
        kept = self._keeping.asked(item.found is not None)
        if kept:
            self.graft.has_rows()
        return kept

    def has_rows(self, item: Item, use: Use) -> bool:
        """Whether it has all of an item's rows there."""
        placed = self.place(True, use.iteration, use.call, item.fed)
        return placed is not None and placed.found

    def _iteration_of(self, item: Item, use: Use, is_sure: bool) -> int | None:
        """In which it has all rows of an item."""
        iterations = [use.iteration]
        if not is_sure:
            iterations += self._session.settings.iterations
        for iteration in dict.fromkeys(iterations):
            if self.has_rows(item, use._replace(iteration=iteration)):
                return iteration
        return None

    # How many

    def micro_batches(self, iteration: int, item: Item) -> int | None:
        """This rank's in an iteration, as the reference's global batch has it."""
        rows = self.rows(iteration, item)
        if rows is None or not item.rows:
            return None
        return -(-rows // (item.rows * self._session.topology.batch_parts))

    def rows(self, iteration: int, item: Item) -> int | None:
        """Of the reference's global batch."""
        assert self.graft is not None
        for arg, value in item.own.items():
            if item.rows and value.shape[:1] == (item.rows,):
                rows = self.graft.rows_of_data(arg, iteration)
                if rows is not None:
                    return rows
        return None

    def items_each(self, iteration: int, item: Item) -> int:
        """Items of one micro-batch."""
        assert self.graft is not None
        count = 1
        while any(self.graft.rows_of_data(arg, iteration, count) for arg in item.own):
            count += 1
        return count

    # Values

    def whole(self, item: Item, use: Use) -> dict[str, torch.Tensor] | None:
        """The reference's values in place of all of an item, or None."""
        assert self.graft is not None
        relative = next(
            (one.arg for one in item.fed if one.dim == 0 and self._is_relative(one, use)), None
        )
        if relative is not None and any(one.dim != 0 or not one.relative for one in item.fed):
            self.graft.keeps_item(
                relative, use.iteration, f"{relative} counts within the batch of its rank"
            )
            return None
        return self.graft.whole_item(
            {
                arg: (
                    value,
                    *self._placed(item.rows, use, arg, value, ""),
                    value.shape[:1] == (item.rows,),
                )
                for arg, value in item.own.items()
            }
        )

    def value(
        self, rows: int | None, use: Use, arg: str, tensor: torch.Tensor, placements: str = ""
    ) -> torch.Tensor:
        """Its values of one tensor of an item. `placements`: on the device mesh, where these are
        known."""
        assert self.graft is not None
        spec, place = self._placed(rows, use, arg, tensor, placements)
        return self.graft.item(place.pop("arg"), tensor, spec, **place)

    def _is_relative(self, one: Fed, use: Use) -> bool:
        """What counts within a batch does so in all of them. The labels of a few rows may look like
        it, as 0 and 5 do."""
        assert self.graft is not None
        return one.relative and all(
            self.graft.is_relative(iteration, use.call, one)
            for iteration in dict.fromkeys((use.iteration, *self._session.settings.iterations))
        )

    def _placed(
        self, rows: int | None, use: Use, arg: str, tensor: torch.Tensor, placements: str
    ) -> tuple[Any, dict[str, Any]]:
        """Its spec, if the reference has such a place, and the place."""
        assert self.graft is not None
        session = self._session
        place = place_of(session, rows, use, arg, tensor, placements)
        has_rows = counts_rows(rows, tensor, placements, session.topology)
        count = tensor.shape[0] if has_rows else 0
        whole = self.graft.rows_of_data(place["arg"], use.iteration, use.call) if has_rows else 0
        if whole is None or place["row_begin"] + count > whole:
            return None, place
        dim = 0 if has_rows else -1
        words = without_rows(placements, dim)
        spec = session.specs.get(
            "data", "data", place["arg"], tensor, words, batch_dim=dim, batch_global=whole
        )
        return spec, place


def place_of(
    session: LoopSession,
    rows: int | None,
    use: Use,
    arg: str,
    tensor: torch.Tensor,
    placements: str = "",
) -> dict[str, Any]:
    """Of one tensor of an item in the global batch, as in a record."""
    topology = session.topology
    micro_batch = use.index * topology.batch_parts + topology.batch_part
    has_rows = counts_rows(rows, tensor, placements, topology)
    if tensor.dim() == 0:
        # One value a micro-batch and not a part of a batch: a tensor of its own.
        arg = f"{arg}@{micro_batch}"
    pieces, index = rows_cut(placements, 0, topology) if has_rows else (1, 0)
    return {
        "arg": arg,
        "iteration": use.iteration,
        "micro_batch": micro_batch,
        "row_begin": (micro_batch * pieces + index) * tensor.shape[0] if has_rows else 0,
        "call": use.call,
    }


def counts_rows(
    rows: int | None, tensor: torch.Tensor, placements: str, topology: Topology
) -> bool:
    """Whether the first dimension of a tensor does. What the loop has said to be cut does not."""
    is_cut = topology.declared is not None and ":Shard(0)" in placements
    return rows is not None and tensor.shape[:1] == (rows,) and not is_cut
