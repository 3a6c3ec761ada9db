"""Tensors as bytes that C++ can read."""

from __future__ import annotations

from typing import Any

import torch

from ttrace import _native


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in this process's memory, with torch's lazy bits resolved."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_neg().resolve_conj()
    return tensor


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
