"""Whether a gradient is what it was when it was last looked at.

torch counts the changes of a tensor, and views of one tensor have one count. Gradients that
DistributedDataParallel keeps as views of a bucket therefore count the changes of each other: where
several optimizers share a bucket, what the loop does to those of one says nothing of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from ttrace.adapters.torch.dtensors import held_tensor


class Seen:
    """A gradient at one time."""

    def __init__(self, gradient: Any, shares_count: bool) -> None:
        """`shares_count`: other gradients have the same count."""
        local = held_tensor(gradient)
        self._identity = id(gradient)
        self._count = local._version
        self._values = summary_of(local) if shares_count else None

    def differs_from(self, gradient: Any) -> bool:
        """Waits for the gradient's device only where the count cannot tell."""
        local = held_tensor(gradient)
        if id(gradient) != self._identity:
            return True
        if local._version == self._count:
            return False
        return self._values is None or not torch.equal(self._values, summary_of(local))


def shared_storages(gradients: Iterable[Any]) -> set[int]:
    """Those that more than one of these lie in."""
    counts = Counter(storage_of(gradient) for gradient in gradients)
    return {storage for storage, count in counts.items() if storage and count > 1}


def storage_of(gradient: Any) -> int:
    """0: it has none that others could share."""
    local = held_tensor(gradient)
    return local.untyped_storage().data_ptr() if local.layout is torch.strided else 0


def summary_of(local: torch.Tensor) -> torch.Tensor:
    """Norm and sum, on its device, which nothing waits for. As bits: a NaN is equal to itself."""
    values = local.detach()
    if not values.is_floating_point():
        return values.sum()
    wide = torch.float32 if values.dtype.itemsize < 4 else values.dtype
    numbers = torch.linalg.vector_norm(values, dtype=wide), values.sum(dtype=wide)
    return torch.stack(numbers).view(torch.uint8)
