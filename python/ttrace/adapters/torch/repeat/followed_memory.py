"""Memory whose changes are recorded: of gradients, of parameters that were stepped, and of tensors
that a recorded call has written to."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ttrace.adapters.torch.dtensors import held_tensor


class FollowedMemory:
    """By address, with the slot of the tensor that lies there. A loop may free it, and then its
    address says nothing."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[int, StorageWeakRef | None]] = {}

    def add(self, tensor: torch.Tensor, slot: int) -> None:
        storage = _storage(tensor)
        self._slots[memory_of(tensor)] = slot, None if storage is None else StorageWeakRef(storage)

    def slot(self, tensor: torch.Tensor) -> int | None:
        """Of the followed tensor that this one shares memory with, if one there is."""
        found = self._slots.get(memory_of(tensor)) if self._slots else None
        if found is None:
            return None
        slot, storage = found
        if storage is not None and storage.expired():
            del self._slots[memory_of(tensor)]
            return None
        return slot


class Memories:
    """Numbers them, each for as long as it is. An address that was freed may be another's next."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, StorageWeakRef | None]] = {}  # by address
        self._count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """The same for all tensors that lie in one memory, views of it included."""
        address, storage = memory_of(tensor), _storage(tensor)
        number, known = self._numbers.get(address, (-1, None))
        if number < 0 or (known is not None and known.expired()):
            number, self._count = self._count, self._count + 1
            known = None if storage is None else StorageWeakRef(storage)
            self._numbers[address] = number, known
        return number


def memory_of(tensor: torch.Tensor) -> int:
    """An address, or what tells it from others if it has none."""
    storage = _storage(tensor)
    return (0 if storage is None else storage.data_ptr()) or id(tensor)


def _storage(tensor: torch.Tensor) -> Any:
    local = held_tensor(tensor)
    if local.layout is not torch.strided:
        return None
    try:
        return local.untyped_storage()
    except Exception:  # of a functional wrapper
        return None
