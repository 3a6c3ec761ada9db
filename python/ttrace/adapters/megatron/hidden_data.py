"""Where forward_step takes its batch from, if the schedule is given no data iterator.

Iterators that it reaches through its globals or its closure are wrapped as the schedule's own would
be, and its plain counters are put back after a rerun: running a step again must not take the user's
next batch.
"""

from __future__ import annotations

import functools
import io
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PLAIN = (int, float, str, bool)
_DEPTH = 3


def functions_of(function: Any) -> list[types.FunctionType]:
    """The function and those of the same file that it names."""
    found: list[types.FunctionType] = []
    _collect(function, found, _DEPTH)
    return found


def _collect(function: Any, found: list[types.FunctionType], depth: int) -> None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or function in found or not depth:
        return
    found.append(function)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if getattr(value, "__module__", None) == function.__module__:
            _collect(value, found, depth - 1)
    for cell in function.__closure__ or ():
        value = _contents(cell)
        if getattr(value, "__module__", None) == function.__module__:
            _collect(value, found, depth - 1)


class _Slot:
    """A global of a function, or a variable that it closes over."""

    def __init__(self, where: dict[str, Any] | types.CellType, name: str) -> None:
        self._where = where
        self.key = (id(where), name if isinstance(where, dict) else "")
        self._name = name

    @property
    def value(self) -> Any:
        if isinstance(self._where, dict):
            return self._where.get(self._name)
        return _contents(self._where)

    @value.setter
    def value(self, value: Any) -> None:
        if isinstance(self._where, dict):
            self._where[self._name] = value
        else:
            self._where.cell_contents = value


def _slots(functions: list[types.FunctionType]) -> list[_Slot]:
    slots: dict[Any, _Slot] = {}
    for function in functions:
        for name in function.__code__.co_names:
            if name in function.__globals__:
                slot = _Slot(function.__globals__, name)
                slots.setdefault(slot.key, slot)
        for cell in function.__closure__ or ():
            slot = _Slot(cell, "")
            slots.setdefault(slot.key, slot)
    return list(slots.values())


class HiddenData:
    """Of one forward_step."""

    def __init__(self, forward_step: Any) -> None:
        slots = _slots(functions_of(forward_step))
        self._iterators = [slot for slot in slots if _is_iterator(slot.value)]
        self._plain = [slot for slot in slots if type(slot.value) in _PLAIN]

    @contextmanager
    def wrapped(self, wrap: Callable[[Any], Any]) -> Iterator[list[Any]]:
        """Inside, what was found is in wrappers, which are given."""
        before = [(slot, slot.value) for slot in self._iterators]
        made: dict[int, Any] = {}
        for slot, value in before:
            slot.value = made.setdefault(id(value), wrap(value))
        try:
            yield list(made.values())
        finally:
            for slot, value in before:
                slot.value = value

    def counters(self) -> list[Any]:
        return [slot.value for slot in self._plain]

    def set_counters(self, values: list[Any]) -> None:
        for slot, value in zip(self._plain, values, strict=True):
            slot.value = value


def _is_iterator(value: Any) -> bool:
    # Files hand out lines.
    return (
        hasattr(type(value), "__next__")
        and not isinstance(value, io.IOBase)
        and not isinstance(value, type)
    )


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
