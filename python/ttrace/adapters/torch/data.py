"""The data of a loop: recorded, and replaced by the reference's where data is grafted.

An item of a DataLoader belongs to the micro-batch whose forward uses it. Loaders may read ahead
(accelerate's are one batch ahead, across iterations), so items wait in a queue until a forward
shows which was used: its arguments lie in the item's memory, or are equal to it, or, if the loop
made something else of the item, it is the oldest. The k-th item of a micro-batch is its call k.
Only the loader that is read first counts: others are for validation.

Rows are replaced (see reference_data.py) when an item is handed out, because the loop may copy it
at once. How many items an iteration takes is known from the reference. If a guess was wrong, what
lies in the item's memory is put right when its forward comes; rows that stayed are the loop's own
memory, and it is said that they are not this iteration's.

A loop that makes its batches by hand has no items: see own_inputs.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import dataloader

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.data_items import Item, Use
from ttrace.adapters.torch.data_records import record_item
from ttrace.adapters.torch.fed_rows import Fed, Placed
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.own_inputs import OwnInputs
from ttrace.adapters.torch.reference_data import ReferenceData
from ttrace.capture.course import Course
from ttrace.capture.nested import named_tensors
from ttrace.capture.patches import Patches
from ttrace.capture.placed import Moment
from ttrace.capture.replay_data import map_tensors
from ttrace.capture.tensor_bytes import bitwise_equal

_OF_ITEM = "item "  # src/experiment/row_alignment.h: before the name of an item's argument
_QUEUE = 64  # items that may wait; a loop that reads a whole epoch ahead keeps only the newest


class Data:
    """Sees what the iterators of all DataLoaders of the process hand out, and the model's inputs
    where there are none."""

    def __init__(
        self,
        session: LoopSession,
        patches: Patches,
        course: Course,
        ensure_started: Callable[[], object],
    ) -> None:
        self._session = session
        self._ensure_started = ensure_started
        self._reference = ReferenceData(session, course)
        self._own_inputs = OwnInputs(session, self._reference)
        self._dataset: Any = None
        self._waiting: deque[Item] = deque(maxlen=_QUEUE)
        self._sizes: set[int | None] = set()  # rows of the items that were handed out
        iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
        patches.wrap_result(iterators, "__next__", self._item)

    def end_iteration(self) -> None:
        """Before the session forgets where the model's inputs lie."""
        self._own_inputs.note_missing_target()
        self._own_inputs.compare()

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
        session.now.micro_batches.close()
        if session.iteration + 1 < session.settings.iterations[0]:
            return item  # loaders read one iteration ahead at most
        try:
            if session.due:
                self._ensure_started()
            with torch.no_grad():
                return self._handed_out(item)
        except Exception as error:
            session.stop(error)
            return item

    def _handed_out(self, loaded: Any) -> Any:
        tensors: dict[str, torch.Tensor] = {}
        map_tensors(loaded, lambda arg, value: tensors.setdefault(arg, value))
        sizes = [value.shape[0] for value in tensors.values() if value.dim() > 0]
        own = {arg: value.clone() for arg, value in tensors.items()}
        read = fed_rows.fed({"0": loaded} if torch.is_tensor(loaded) else {"": loaded})
        item = Item(sizes[0] if sizes else None, own, read)
        use = item.use = self._use_in_reference(item)
        self._sizes.add(item.rows)
        given = loaded
        if use is not None and not self._reference.keeps_rows(item, use, self._is_sure(item, use)):
            values = self._reference.whole(item, use)
            if values is not None:
                item.replaced = True
                given = map_tensors(loaded, lambda arg, value: values.get(arg, value))
        map_tensors(given, lambda arg, value: item.given.setdefault(arg, value))
        self._waiting.append(item)
        return given

    def _is_sure(self, item: Item, use: Use) -> bool:
        """Whether an item can be of no other iteration: all have one size, of which the reference's
        global batch is a multiple."""
        whole = self._reference.rows(use.iteration, item)
        if whole is None or not item.rows or len(self._sizes) > 1:
            return False
        return whole % (item.rows * self._session.topology.batch_parts) == 0

    def _use_in_reference(self, item: Item) -> Use | None:
        """Where the reference's values for this item are; None: it keeps its own."""
        in_use, iterations = self._session.now.data, self._session.settings.iterations
        use = in_use.next_use(len(self._waiting))
        if self._reference.data is None or use.iteration not in iterations:
            return None
        count = self._reference.micro_batches(use.iteration, item)
        if count is None:
            return None
        if use.index >= count:
            use = Use(use.iteration + 1, 0)
            if use.iteration not in iterations:
                in_use.expect(use)
                return None
        if use.call + 1 < self._reference.items_each(use.iteration, item):
            in_use.expect(Use(use.iteration, use.index, use.call + 1))
        else:
            in_use.expect(Use(use.iteration, use.index + 1))
        return use

    # Forwards

    def forward(
        self,
        new: bool,
        index: int,
        rows: int,
        arguments: dict[str, Any],
        moment: Moment | None = None,
    ) -> dict[str, torch.Tensor]:
        """A forward of the model in the `index`-th micro-batch of this rank, `new` if it begins it.
        Returns what the model must get in place of its own inputs, by names. `moment`: of the
        forward, if it is one of several models'."""
        session, in_use = self._session, self._session.now.data
        in_use.begin_forward()
        if new:
            self._own_inputs.note_missing_target()
            in_use.begin_micro_batch(index)
        tensors = {
            name: value
            for argument, given in arguments.items()
            for name, value in named_tensors(given, argument)
            if not isinstance(value, torch.nn.Parameter)
        }
        count, certain = self._count_used(tensors.values())
        for _ in range(count):
            item = self._waiting.popleft()
            use = in_use.use(item)
            if not session.due:
                continue
            self._put_right(item, use, certain)
            record_item(session, item, use)
            given = fed_rows.fed(item.given) if item.replaced else item.fed
            in_use.fed += fed_rows.prefixed(given, _OF_ITEM)
        if self._dataset is None and session.due:
            return self._own_inputs.forward(arguments, tensors, rows, moment)
        return {}

    def place(self, iteration: int, call: int, tensors: list[Fed]) -> Placed | None:
        """Where the reference has the rows of a forward; None: nothing is taken from there."""
        given = [*tensors, *self._session.now.data.fed]
        return self._reference.place(False, iteration, call, given)

    def _count_used(self, tensors: Iterable[torch.Tensor]) -> tuple[int, bool]:
        """How many of the waiting items have been used when a forward takes these tensors, and
        whether that was seen in them."""
        in_use = self._session.now.data
        # A column of an item that is in use may equal one of a waiting item: masks often do.
        tensors = in_use.not_in_use(tensors)
        for holds in (Item.holds_memory, Item.holds_value):
            for k, item in enumerate(self._waiting):
                if any(holds(item, tensor) for tensor in tensors):
                    return k + 1, True
        return (1 if in_use.is_first and self._waiting else 0), False

    def _put_right(self, item: Item, use: Use, certain: bool) -> None:
        """Gives an item the values of its real place in the global batch."""
        graft = self._reference.graft
        if graft is None:
            return
        before, item.use = item.use, use
        if not item.replaced:
            elsewhere = item.found not in (None, use.iteration)
            if elsewhere and not self._reference.has_rows(item, use):
                reason = f"its rows are those of iteration {item.found} of the reference"
                graft.keeps_item("rows", use.iteration, reason)
            return
        if before == use:
            return
        values = self._reference.whole(item, use) or {}
        for arg, given in item.given.items():
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

    # Beside the model

    def target(self, target: torch.Tensor) -> torch.Tensor | None:
        """What a loss function gets in place of its target, in a loop without a loader."""
        return self._own_inputs.target(target) if self._dataset is None else None

    def loss_is_made_inside(self) -> None:
        self._own_inputs.loss_is_made_inside()
