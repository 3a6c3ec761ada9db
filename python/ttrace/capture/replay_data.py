"""The user's data iterator, in a wrapper that can give the same items again.

Each call gets a clone of its own, because user code takes items apart (`pop`) and writes into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ttrace.capture.nested import is_keyed, with_items

Inspect = Callable[[int, Any], Any]


class ReplayIterator:
    """Hands on the items of one iterator and remembers them if they will be asked for again.

    `inspect(k, item)` sees the k-th item before the user does and returns what the user gets:
    the item itself, or the reference's values in its place.
    """

    def __init__(self, source: Iterator[Any], inspect: Inspect, keep: bool) -> None:
        self._source = source
        self._inspect = inspect
        self._keep = keep
        self._items: list[Any] = []
        self._position = 0
        self._replaying = False
        self.lost: str | None = None  # why an item could not be remembered

    def __iter__(self) -> ReplayIterator:
        return self

    def __next__(self) -> Any:
        position, self._position = self._position, self._position + 1
        if self._replaying:
            if position >= len(self._items):
                raise RuntimeError(
                    f"a rerun asks for item {position} of the data, the iteration took"
                    f" only {len(self._items)}"
                )
            return clone(self._items[position])
        item = self._inspect(position, next(self._source))
        if self._keep and self.lost is None:
            self._remember(item)
        return item

    def _remember(self, item: Any) -> None:
        """Without the item there is no rerun; the iteration that runs now has it."""
        try:
            self._items.append(clone(item))
        except Exception as error:
            self.lost = f"{type(error).__name__}: {error}"
            self._items.clear()

    def __getattr__(self, name: str) -> Any:
        # Iterators of frameworks have methods of their own.
        return getattr(self._source, name)

    def rewind(self) -> None:
        """From now on the items of the first pass are given again."""
        self._position = 0
        self._replaying = True


def wrap(source: Any, inspect: Inspect, keep: bool) -> Any:
    """Wraps an iterator, or each of a list of them (one a model chunk). None stays None: ranks
    that read no data have none. A thing that is no iterator is left alone."""
    if isinstance(source, list):
        return [wrap(item, inspect, keep) for item in source]
    if source is None or not hasattr(source, "__next__"):
        return source
    return ReplayIterator(source, inspect, keep)


def rewind(wrapped: Any) -> None:
    for iterator in _iterators(wrapped):
        iterator.rewind()


def lost(wrapped: Any) -> str | None:
    """Why the items cannot be given again, or None."""
    return next((iterator.lost for iterator in _iterators(wrapped) if iterator.lost), None)


def _iterators(wrapped: Any) -> Iterator[ReplayIterator]:
    for item in wrapped if isinstance(wrapped, list) else [wrapped]:
        if isinstance(item, list):
            yield from _iterators(item)
        elif isinstance(item, ReplayIterator):
            yield item


def clone(item: Any) -> Any:
    """A deep copy of the tensors in what holds items by key, in lists and tuples."""
    return map_tensors(item, lambda path, tensor: tensor.clone())


def map_tensors(
    item: Any, function: Callable[[str, torch.Tensor], torch.Tensor], path: str = ""
) -> Any:
    """The same structure with each tensor replaced. Paths are keys and indices joined by dots; a
    bare tensor is "0"."""
    if torch.is_tensor(item):
        return function(path or "0", item)
    prefix = f"{path}." if path else ""
    if is_keyed(item):
        return with_items(item, lambda key, value: map_tensors(value, function, f"{prefix}{key}"))
    if isinstance(item, list | tuple):
        values = [map_tensors(v, function, f"{prefix}{i}") for i, v in enumerate(item)]
        return type(item)(*values) if hasattr(item, "_fields") else type(item)(values)
    return item
