"""The data of a loop: recorded, and replaced by the reference's where data is grafted.

An item of a DataLoader belongs to the micro-batch whose forward uses it. Loaders may read ahead
(accelerate's are one batch ahead, across iterations), so items wait in a queue until a forward
shows which was used: its arguments lie in the item's memory, or are equal to it, or, if the loop
made something else of the item, it is the oldest. The k-th item of a micro-batch is its call k.
Only the loader that is read first counts: others are for validation.

An item whose rows the reference has, in whatever order and however padded, keeps them: the check
maps rows by their contents. Only rows that the reference does not have are replaced, all tensors of
an item or none. That has to come earlier, when the item is handed out, because the loop may copy it
at once. How many items an iteration takes is known from the reference. If a guess was wrong, what
lies in the item's memory is put right when its forward comes; rows that stayed are the loop's own
memory, and it is said that they are not this iteration's.

A loop that makes its batches by hand has no items. There the model's own inputs are the data. On a
device mesh they may be parts of it, which the model itself says when it makes DTensors of them: too
late to replace them, in time to see whether they are the reference's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils.data import dataloader

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.fed_rows import Fed, Placed, Space
from ttrace.adapters.torch.patches import Patches
from ttrace.adapters.torch.row_keeping import RowKeeping
from ttrace.adapters.torch.topology import is_dtensor, rows_cut, without_rows
from ttrace.capture.graft import Graft
from ttrace.capture.nested import named_tensors
from ttrace.capture.replay_data import map_tensors
from ttrace.capture.tensor_bytes import bitwise_equal

_OF_ITEM = "item "  # src/experiment/row_alignment.h: before the name of an item's argument
_QUEUE = 64  # items that may wait; a loop that reads a whole epoch ahead keeps only the newest


@dataclass(frozen=True)
class _Slot:
    """The use of an item: the k-th of a micro-batch of an iteration of this rank."""

    iteration: int
    index: int
    call: int = 0


@dataclass
class _Item:
    rows: int | None
    own: dict[str, torch.Tensor]  # copies of what the loader made
    given: dict[str, torch.Tensor] = field(default_factory=dict)  # what the loop got
    slot: _Slot | None = None  # its place in the reference's iteration
    fed: list[Fed] = field(default_factory=list)  # of what the loader made
    replaced: bool = False  # by the reference's values
    found: int | None = None  # the iteration in which the reference has its rows


@dataclass
class _Kept:
    """An input of the model that keeps its own values."""

    name: str
    value: torch.Tensor
    rows: int
    slot: _Slot
    word: str  # stands for its placements, see DeferredSession.lies


class Data:
    """Sees what the iterators of all DataLoaders of the process hand out, and the model's inputs
    where there are none."""

    def __init__(
        self,
        session: DeferredSession,
        patches: Patches,
        ensure_started: Callable[[], None],
        taken: Callable[[], None],
    ) -> None:
        """`taken()` is called when the loop has taken an item."""
        self.graft: Graft | None = None
        self.used: list[Fed] = []  # what the items of the forward that runs hold
        self._targets = 0  # of the current micro-batch
        # Inputs of this micro-batch that were replaced, until its targets are, too.
        self._without_target: set[str] = set()
        # Placements of one of the model's inputs.
        self.lies: Callable[[torch.Tensor], str] = lambda tensor: ""
        self._session = session
        self._ensure_started = ensure_started
        self._taken = taken
        self._dataset: Any = None
        self._waiting: deque[_Item] = deque(maxlen=_QUEUE)
        self._next: _Slot | None = None  # of the item that will be handed out
        self._calls_here = 0  # items of the current micro-batch
        self._in_use: list[_Item] = []  # the same
        self._index = -1  # of the current micro-batch
        self._sizes: set[int | None] = set()  # rows of the items that were handed out
        self._keeping = RowKeeping(session)
        self._kept: list[_Kept] = []  # to be compared when it is known where they lie
        iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
        patches.wrap_result(iterators, "__next__", self._item)
        self._next = _Slot(0, 0)

    def end_iteration(self) -> None:
        """Before the session forgets where the model's inputs lie."""
        self._say_targets()
        for kept in self._kept:
            self._compare(kept)
        self._kept.clear()

    def begin_iteration(self) -> None:
        """Items that wait are the first ones of this iteration."""
        self._index, self._calls_here = -1, 0
        self._next = _Slot(self._session.iteration, len(self._waiting))

    # Items of a loader

    def _item(self, iterator: Any, item: Any) -> Any:
        """What the loop gets in place of `item`. Never raises."""
        session = self._session
        if session.over or not torch.is_grad_enabled():
            return item
        if self._dataset is None:
            self._dataset = iterator._dataset
        if iterator._dataset is not self._dataset:
            return item
        self._taken()
        iterations = session.settings.iterations
        if session.iteration + 1 < iterations[0]:
            return item  # loaders read one iteration ahead at most
        try:
            if session.due:
                self._ensure_started()
            with torch.no_grad():
                return self._handed_out(item)
        except Exception as error:
            session.stop(error)
            return item

    def _handed_out(self, item: Any) -> Any:
        tensors: dict[str, torch.Tensor] = {}
        map_tensors(item, lambda arg, value: tensors.setdefault(arg, value))
        sizes = [value.shape[0] for value in tensors.values() if value.dim() > 0]
        entry = _Item(sizes[0] if sizes else None, {k: v.clone() for k, v in tensors.items()})
        entry.fed = fed_rows.fed({"0": item} if torch.is_tensor(item) else {"": item})
        entry.slot = self._next_slot(entry)
        self._sizes.add(entry.rows)
        given = item
        if entry.slot is not None and not self._keeps_rows(entry, self._is_sure(entry)):
            values = self._whole(entry, entry.slot)
            if values is not None:
                entry.replaced = True
                given = map_tensors(item, lambda arg, value: values.get(arg, value))
        map_tensors(given, lambda arg, value: entry.given.setdefault(arg, value))
        self._waiting.append(entry)
        return given

    def _keeps_rows(self, entry: _Item, is_sure: bool) -> bool:
        """Whether nothing is put in place of an item's rows: they are the reference's. `is_sure`:
        that they are used in this iteration."""
        assert self.graft is not None and entry.slot is not None
        entry.found = self._iteration_of(entry, entry.slot, is_sure)
        kept = self._keeping.asked(entry.found is not None)
        if kept:
            self.graft.has_rows()
        return kept

    def _iteration_of(self, entry: _Item, slot: _Slot, is_sure: bool) -> int | None:
        """In which the reference has all rows of an item."""
        iterations = [slot.iteration]
        if not is_sure:
            iterations += self._session.settings.iterations
        for iteration in dict.fromkeys(iterations):
            placed = self._place(True, iteration, slot.call, entry.fed)
            if placed is not None and placed.found:
                return iteration
        return None

    def _is_sure(self, entry: _Item) -> bool:
        """Whether an item can be of no other iteration: all have one size, of which the reference's
        global batch is a multiple."""
        assert entry.slot is not None
        whole = self._rows_of_source(entry.slot.iteration, entry)
        if whole is None or not entry.rows or len(self._sizes) > 1:
            return False
        return whole % (entry.rows * self._session.topology.dp_size) == 0

    def place(self, iteration: int, call: int, tensors: list[Fed]) -> Placed | None:
        """Where the reference has the rows of a forward; None: nothing is taken from there."""
        return self._place(False, iteration, call, [*tensors, *self.used])

    def _place(self, is_data: bool, iteration: int, call: int, tensors: list[Fed]) -> Placed | None:
        """None: the reference does not say what it was fed."""
        if self.graft is None:
            return None
        found = self.graft.place(is_data, iteration, call, tensors)
        if found is None:
            return None
        spaces, foreign, at_begin = found
        return Placed([Space(*space) for space in spaces], foreign, at_begin)

    def _whole(self, entry: _Item, slot: _Slot) -> dict[str, torch.Tensor] | None:
        """The reference's values in place of all of an item, or None."""
        assert self.graft is not None
        relative = next(
            (one.arg for one in entry.fed if one.dim == 0 and self._is_relative(one, slot)), None
        )
        if relative is not None and any(one.dim != 0 or not one.relative for one in entry.fed):
            self.graft.keeps_item(
                relative, slot.iteration, f"{relative} counts within the batch of its rank"
            )
            return None
        return self.graft.whole_item(
            {
                arg: (
                    value,
                    *self._placed(entry.rows, slot, arg, value),
                    value.shape[:1] == (entry.rows,),
                )
                for arg, value in entry.own.items()
            }
        )

    def _is_relative(self, one: Fed, slot: _Slot) -> bool:
        """What counts within a batch does so in all of them. The labels of a few rows may look like
        it, as 0 and 5 do."""
        assert self.graft is not None
        return one.relative and all(
            self.graft.is_relative(iteration, slot.call, one)
            for iteration in dict.fromkeys((slot.iteration, *self._session.settings.iterations))
        )

    def _next_slot(self, entry: _Item) -> _Slot | None:
        """Where the reference's values for this item are; None: it keeps its own."""
        slot, graft = self._next, self.graft
        if slot is None or graft is None or not graft.data:
            return None
        if slot.iteration not in self._session.settings.iterations:
            return None
        count = self._count(slot.iteration, entry)
        if count is None:
            return None
        if slot.index >= count:
            slot = _Slot(slot.iteration + 1, 0)
            if slot.iteration not in self._session.settings.iterations:
                self._next = slot
                return None
        more = slot.call + 1 < self._items_each(slot.iteration, entry)
        self._next = (
            _Slot(slot.iteration, slot.index, slot.call + 1)
            if more
            else _Slot(slot.iteration, slot.index + 1)
        )
        return slot

    def _count(self, iteration: int, entry: _Item) -> int | None:
        """This rank's micro-batches in an iteration, as the reference's global batch has it."""
        rows = self._rows_of_source(iteration, entry)
        if rows is None or not entry.rows:
            return None
        return -(-rows // (entry.rows * self._session.topology.dp_size))

    def _rows_of_source(self, iteration: int, entry: _Item) -> int | None:
        """Of the reference's global batch."""
        assert self.graft is not None
        for arg, value in entry.own.items():
            if entry.rows and value.shape[:1] == (entry.rows,):
                rows = self.graft.rows_of_data(arg, iteration)
                if rows is not None:
                    return rows
        return None

    def _items_each(self, iteration: int, entry: _Item) -> int:
        """Items of one micro-batch."""
        assert self.graft is not None
        count = 1
        while any(self.graft.rows_of_data(arg, iteration, count) for arg in entry.own):
            count += 1
        return count

    # Forwards

    def forward(
        self, new: bool, index: int, rows: int, arguments: dict[str, Any]
    ) -> dict[str, torch.Tensor]:
        """A forward of the model in the `index`-th micro-batch of this rank, `new` if it begins it.
        Returns what the model must get in place of its own inputs, by names."""
        self.used = []
        if new:
            self._say_targets()
            self._calls_here, self._index = 0, index
            self._in_use.clear()
            self._targets = 0
        tensors = {
            name: value
            for argument, item in arguments.items()
            for name, value in named_tensors(item, argument)
            if not isinstance(value, torch.nn.Parameter)
        }
        used, certain = self._used(tensors.values(), first=self._calls_here == 0)
        for _ in range(used):
            entry = self._waiting.popleft()
            self._in_use.append(entry)
            slot = _Slot(self._session.iteration, index, self._calls_here)
            self._calls_here += 1
            if not self._session.due:
                continue
            self._put_right(entry, slot, certain)
            self._record(entry, slot)
            given = fed_rows.fed(entry.given) if entry.replaced else entry.fed
            self.used += fed_rows.prefixed(given, _OF_ITEM)
        if self._dataset is None and self._session.due:
            return self._by_hand(arguments, tensors, rows)
        return {}

    def _used(self, tensors: Iterable[torch.Tensor], first: bool) -> tuple[int, bool]:
        """How many of the waiting items have been used when a forward takes these tensors, and
        whether that was seen in them."""
        # A column of an item that is in use may equal one of a waiting item: masks often do.
        tensors = [t for t in tensors if not any(map(partial(_holds, t), self._in_use))]
        for holds in (_holds_memory, _holds_value):
            for k, entry in enumerate(self._waiting):
                if any(holds(t, entry) for t in tensors):
                    return k + 1, True
        return (1 if first and self._waiting else 0), False

    def _put_right(self, entry: _Item, slot: _Slot, certain: bool) -> None:
        """Gives an item the values of its real place in the global batch."""
        if self.graft is None:
            return
        if not entry.replaced:
            if entry.found not in (None, slot.iteration):
                placed = self._place(True, slot.iteration, slot.call, entry.fed)
                if placed is None or not placed.found:
                    reason = f"its rows are those of iteration {entry.found} of the reference"
                    self.graft.keeps_item("rows", slot.iteration, reason)
            entry.slot = slot
            return
        if entry.slot == slot:
            return
        values = self._whole(entry, slot) or {}
        for arg, given in entry.given.items():
            value = values.get(arg, given)
            if given.shape == value.shape and not bitwise_equal(given, value):
                given.copy_(value)
                if not certain:
                    self._session.not_grafted(
                        "data",
                        arg,
                        "the loop read its data in another order than the reference",
                        "start both with the same global batch and the same loop",
                    )
        entry.slot = slot

    def _value(
        self, rows: int | None, slot: _Slot, arg: str, tensor: torch.Tensor, placements: str = ""
    ) -> torch.Tensor:
        """The reference's values of one tensor of an item."""
        assert self.graft is not None
        spec, place = self._placed(rows, slot, arg, tensor, placements)
        return self.graft.item(place.pop("arg"), tensor, spec, **place)

    def _placed(
        self,
        rows: int | None,
        slot: _Slot,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
    ) -> tuple[Any, dict[str, Any]]:
        """`placements`: on the device mesh, where these are known."""
        session, topology = self._session, self._session.topology
        micro_batch = slot.index * topology.dp_size + topology.dp_rank
        has_rows = rows is not None and tensor.shape[:1] == (rows,)
        if tensor.dim() == 0:
            # One value a micro-batch and not a part of a batch: a tensor of its own.
            arg = f"{arg}@{micro_batch}"
        pieces, index = rows_cut(placements, 0, topology) if has_rows else (1, 0)
        row_begin = (micro_batch * pieces + index) * tensor.shape[0] if has_rows else 0
        spec = None
        if self.graft is not None:
            whole = self.graft.rows_of_data(arg, slot.iteration, slot.call) if has_rows else 0
            if whole is not None and row_begin + (tensor.shape[0] if has_rows else 0) <= whole:
                spec = session.specs.get(
                    "data", "data", arg, tensor, without_rows(placements, 0 if has_rows else -1),
                    batch_dim=0 if has_rows else -1, batch_global=whole,
                )  # fmt: skip
        place = {
            "arg": arg,
            "iteration": slot.iteration,
            "micro_batch": micro_batch,
            "row_begin": row_begin,
            "call": slot.call,
        }
        return spec, place

    def _record(self, entry: _Item, slot: _Slot) -> None:
        self._note_fed(entry.fed, slot, entry.rows or 0)
        for arg, value in entry.own.items():
            self._record_tensor(entry.rows, slot, arg, value, entry.given.get(arg, value))

    def _note_fed(self, tensors: list[Fed], slot: _Slot, rows: int) -> None:
        if self._session.topology.device_mesh is not None:
            return  # parts of rows may lie on other ranks
        topology = self._session.topology
        fed_rows.note(
            self._session,
            tensors,
            fed="data",
            iteration=slot.iteration,
            micro_batch=slot.index * topology.dp_size + topology.dp_rank,
            call=slot.call,
            rows=rows,
            calls={},
        )

    def _record_tensor(
        self, rows: int | None, slot: _Slot, arg: str, value: torch.Tensor, given: torch.Tensor
    ) -> None:
        """`given` is what the loop got: the model says of its inputs where they lie."""
        _, place = self._placed(rows, slot, arg, value)
        self._session.record(
            "data",
            "data",
            place.pop("arg"),
            value,
            self.lies(given),
            rows=rows or 0,
            batch_dim=0 if rows is not None and value.shape[:1] == (rows,) else -1,
            pass_="forward",
            always=True,
            **place,
        )

    # Batches made by hand

    def _by_hand(
        self, arguments: dict[str, Any], tensors: dict[str, torch.Tensor], rows: int
    ) -> dict[str, torch.Tensor]:
        """The inputs of one forward are the item."""
        session = self._session
        slot = _Slot(session.iteration, self._index, self._calls_here)
        self._calls_here += 1
        own = {
            name: value
            for name, value in tensors.items()
            if not is_dtensor(value) and not value.requires_grad
        }
        # A list that holds rows is known by its items, in whatever order.
        read = [one for one in fed_rows.fed(arguments) if one.arg in own or one.arg not in tensors]
        entry = _Item(rows, own, fed=read, slot=slot)
        self._note_fed(entry.fed, slot, rows)
        for name, value in own.items():
            self._record_tensor(rows, slot, name, value, value)
            if self.graft is None or not self.graft.data:
                continue
            if session.topology.device_mesh is not None:
                kept = _Kept(name, value.detach().clone(), rows, slot, self.lies(value))
                self._kept.append(kept)
        if self.graft is None or not self.graft.data or session.topology.device_mesh is not None:
            return {}
        if not own or self._keeps_rows(entry, is_sure=True):
            return {}
        values = self._whole(entry, slot)
        if values is None:
            return {}
        replaced = {
            name: value for name, value in values.items() if not bitwise_equal(value, own[name])
        }
        self._without_target.update(replaced)
        return replaced

    def _compare(self, kept: _Kept) -> None:
        """Says if an input that kept its own values differs from the reference's."""
        words = self._session.lies.get(kept.word)
        other = self._value(kept.rows, kept.slot, kept.name, kept.value, words or "")
        if other is kept.value or bitwise_equal(other, kept.value):
            return
        self._session.not_grafted(
            "data",
            kept.name,
            "where an input lies on the device mesh is not known"
            if words is None
            else "where an input lies on the device mesh is known only after it was used",
            "give both runs the same batches",
        )

    def target(self, target: torch.Tensor) -> torch.Tensor | None:
        """What a loss function gets in place of its target, in a loop without a loader."""
        session = self._session
        if self._dataset is not None or self._index < 0 or not session.due:
            return None
        if is_dtensor(target) or target.requires_grad:
            return None
        slot = _Slot(session.iteration, self._index, self._targets)
        self._targets += 1
        rows = target.shape[0] if target.dim() > 0 else None
        self._note_target(target, slot)
        self._record_tensor(rows, slot, "target", target, target)
        if self.graft is None or not self.graft.data or session.topology.device_mesh is not None:
            return None
        if not self._without_target:
            return None  # of rows that are the reference's it is so, too, or the check says it
        other = self._value(rows, slot, "target", target)
        self._without_target.clear()
        return None if other is target or bitwise_equal(other, target) else other

    def _note_target(self, target: torch.Tensor, slot: _Slot) -> None:
        topology = self._session.topology
        if topology.device_mesh is not None:
            return
        fed_rows.note_tensors(
            self._session,
            fed_rows.fed({"target": target}),
            fed="data",
            iteration=slot.iteration,
            micro_batch=slot.index * topology.dp_size + topology.dp_rank,
            call=slot.call,
        )

    def loss_is_made_inside(self) -> None:
        """The model puts out a loss: what it is compared with is one of the model's inputs."""
        self._without_target.clear()

    def _say_targets(self) -> None:
        if self._without_target:
            self._session.not_grafted(
                "data",
                "target",
                f"rows of {', '.join(sorted(self._without_target))} are not the reference's and"
                " were replaced by its rows, but what the model's output is compared with was not"
                " seen",
                "give both runs the same batches, or read them through a DataLoader",
            )
        self._without_target.clear()


def _holds(tensor: torch.Tensor, entry: _Item) -> bool:
    return _holds_memory(tensor, entry) or _holds_value(tensor, entry)


def _holds_memory(tensor: torch.Tensor, entry: _Item) -> bool:
    place = _storage(tensor)
    return place != 0 and any(
        _storage(value) == place for value in entry.given.values() if value.numel()
    )


def _holds_value(tensor: torch.Tensor, entry: _Item) -> bool:
    return not is_dtensor(tensor) and any(
        tensor.dtype == value.dtype and bitwise_equal(tensor, value)
        for value in entry.given.values()
        if value.numel() and tensor.shape == value.shape
    )


def _storage(tensor: torch.Tensor) -> int:
    is_plain = tensor.layout is torch.strided and not is_dtensor(tensor)
    return tensor.untyped_storage().data_ptr() if is_plain else 0
