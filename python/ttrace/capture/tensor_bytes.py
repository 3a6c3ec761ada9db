"""Tensors as bytes that C++ can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ttrace import _native


def has_memory(tensor: torch.Tensor) -> bool:
    """False: it is a view of a storage that ends before it does, as that of a flat buffer whose
    memory was given back while nobody needs its values. Reading it would end the process."""
    if tensor.numel() == 0:
        return True
    spans = (
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    end = tensor.storage_offset() + sum(spans) + 1
    return end * tensor.element_size() <= tensor.untyped_storage().nbytes()


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in this process's memory, with torch's lazy bits resolved."""
    tensor = tensor.detach()
    return plain(tensor if tensor.device.type == "cpu" else tensor.cpu())


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values where they are, with torch's lazy bits resolved, and of a collective that may
    still run, its result."""
    if hasattr(tensor, "trigger_wait"):  # AsyncCollectiveTensor
        tensor = tensor.wait()  # type: ignore[attr-defined]
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    return tensor


def on_host(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of one shape, with one transfer for all of a device and a dtype."""
    places: dict[Any, list[int]] = {}
    for i, value in enumerate(values):
        places.setdefault((value.device, value.dtype), []).append(i)
    found = list(values)
    for (device, _), of_one in places.items():
        if device.type == "cpu":
            continue
        together = torch.stack([values[i] for i in of_one]).cpu()
        for i, value in zip(of_one, together.unbind(), strict=True):
            found[i] = value
    return found


def unwrapped(tensor: Any) -> torch.Tensor:
    """What holds the values of a tensor that only wraps another: a DTensor, or the result of a
    collective that may still run. Nothing waits."""
    for name in ("_local_tensor", "elem"):
        tensor = getattr(tensor, name, tensor)
    return tensor


def digest_of(tensor: torch.Tensor) -> Any:
    """Of its bytes; equal for equal tensors."""
    value = host_view(tensor).contiguous()
    return _native.digest(value.data_ptr(), value.numel() * value.element_size())


def bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit, so that NaNs count as themselves."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = host_view(a).contiguous(), host_view(b).contiguous()
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
