"""Items of a loader, the places that they take in an iteration, and which of them are in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ttrace.adapters.torch.dtensors import is_dtensor
from ttrace.adapters.torch.fed_rows import Fed
from ttrace.capture.placed import Moment
from ttrace.capture.tensor_bytes import bitwise_equal

# Between the targets of several losses of one forward: more than an iteration calls its models.
_APART = 1 << 12


class Use(NamedTuple):
    """Of an item: the k-th of a micro-batch of an iteration of this rank."""

    iteration: int
    index: int
    call: int = 0
    moment: Moment | None = None  # of the forward of one of several models


@dataclass
class Item:
    rows: int | None
    own: dict[str, torch.Tensor]  # copies of what the loader made
    fed: list[Fed]  # of what the loader made
    given: dict[str, torch.Tensor] = field(default_factory=dict)  # what the loop got
    use: Use | None = None  # its place in the reference's iteration
    replaced: bool = False  # by the reference's values
    found: int | None = None  # the iteration in which the reference has its rows

    def holds(self, tensor: torch.Tensor) -> bool:
        return self.holds_memory(tensor) or self.holds_value(tensor)

    def holds_memory(self, tensor: torch.Tensor) -> bool:
        place = _storage(tensor)
        return place != 0 and any(
            _storage(value) == place for value in self.given.values() if value.numel()
        )

    def holds_value(self, tensor: torch.Tensor) -> bool:
        return not is_dtensor(tensor) and any(
            tensor.dtype == value.dtype and bitwise_equal(tensor, value)
            for value in self.given.values()
            if value.numel() and tensor.shape == value.shape
        )


class OwnInput(NamedTuple):
    """An input of the model that keeps its own values."""

    name: str
    value: torch.Tensor
    rows: int
    use: Use
    word: str  # stands for its placements, see HeldRecords.lies


class DataInUse:
    """Of one iteration."""

    def __init__(self, iteration: int) -> None:
        self.index = -1  # of the current micro-batch
        self.fed: list[Fed] = []  # what the items of the forward that runs hold
        # Inputs of this micro-batch that were replaced, until its targets are, too.
        self.without_target: set[str] = set()
        self.own_inputs: list[OwnInput] = []  # to be compared when it is known where they lie
        self._iteration = iteration
        self._items: list[Item] = []  # of the current micro-batch
        self._calls = 0  # the same, with inputs that were made by hand
        self._targets = 0  # the same
        self._taken = 0
        self._of_root: Use | None = None  # of the last forward, where there are several models
        self._next: Use | None = None  # of the item that will be handed out

    def next_use(self, waiting: int) -> Use:
        """Of the item that is handed out now. Those that waited when the iteration began are its
        first."""
        if self._next is None:
            self._next = Use(self._iteration, self._taken + waiting)
        return self._next

    def expect(self, use: Use) -> None:
        """Of the item that will be handed out next."""
        self._next = use

    def begin_micro_batch(self, index: int) -> None:
        self.index = index
        self._items.clear()
        self._calls = self._targets = 0

    def begin_forward(self) -> None:
        self.fed = []

    @property
    def is_first(self) -> bool:
        """Whether the micro-batch has used nothing yet."""
        return self._calls == 0

    def not_in_use(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return [t for t in tensors if not any(item.holds(t) for item in self._items)]

    def use(self, item: Item) -> Use:
        self._taken += 1
        self._items.append(item)
        return self.use_inputs()

    def use_inputs(self) -> Use:
        """The model's own are the item."""
        self._calls += 1
        return Use(self._iteration, self.index, self._calls - 1)

    def use_of(self, moment: Moment, batch_parts: int) -> Use:
        """The same, of a forward of one of several models: their micro-batches are their own."""
        self._calls += 1
        self._targets = 0
        index = moment.micro_batch // batch_parts
        self._of_root = Use(self._iteration, index, moment.call, moment)
        return self._of_root

    def use_target(self) -> Use:
        self._targets += 1
        if self._of_root is not None:
            apart = (self._targets - 1) * _APART
            return self._of_root._replace(call=self._of_root.call + apart)
        return Use(self._iteration, self.index, self._targets - 1)


def _storage(tensor: torch.Tensor) -> int:
    is_plain = tensor.layout is torch.strided and not is_dtensor(tensor)
    return tensor.untyped_storage().data_ptr() if is_plain else 0
