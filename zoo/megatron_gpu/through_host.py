"""Collectives of tensors of a GPU by a backend that takes tensors of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _world

# The first argument of each is what it writes to.
_WRITING = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor _all_gather_base "
    "reduce_scatter reduce_scatter_tensor _reduce_scatter_base all_to_all all_to_all_single recv"
).split()


class _Done:
    """The handle of work that is done."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _Arriving:
    """The handle of a tensor that is received into host memory."""

    def __init__(self, work: Any, to: torch.Tensor, arrives: torch.Tensor) -> None:
        self._work, self._to, self._arrives = work, to, arrives

    def wait(self, timeout: Any = None) -> bool:
        self._work.wait()
        self._to.detach().copy_(self._arrives)
        return True

    def is_completed(self) -> bool:
        return self._work.is_completed()


def _on_host(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.detach().cpu()
    if isinstance(value, list | tuple):
        return [_on_host(entry) for entry in value]
    return value


def _is_of_gpu(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_of_gpu, value))
    return torch.is_tensor(value) and value.is_cuda


def _copy_back(to: Any, value: Any) -> None:
    if torch.is_tensor(to):
        to.detach().copy_(value)
        return
    for target, entry in zip(to, value, strict=True):
        target.detach().copy_(entry)


def _writing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(output: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_of_gpu(output):
            return function(output, *args, **kwargs)
        is_async = kwargs.pop("async_op", False)
        # What a coalescing manager would put off is done at once.
        group = kwargs.get("group") or dist.group.WORLD
        put_off = _world.pg_coalesce_state.pop(group, None)
        try:
            on_host = _on_host(output)
            done = function(
                on_host, *map(_on_host, args), **{k: _on_host(v) for k, v in kwargs.items()}
            )
        finally:
            if put_off is not None:
                _world.pg_coalesce_state[group] = put_off
        _copy_back(output, on_host)
        return _Done() if is_async else done

    return call


def _sending(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return function(_on_host(tensor), *args, **kwargs)

    return call


def _receiving_later(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _is_of_gpu(tensor):
            return function(tensor, *args, **kwargs)
        arrives = torch.empty_like(tensor, device="cpu")
        return _Arriving(function(arrives, *args, **kwargs), tensor, arrives)

    return call


def install() -> None:
    """Replaces the functions of torch.distributed. To be called once, before megatron.core is
    imported, which keeps some of them under names of its own."""
    kinds = {name: _writing for name in _WRITING}
    kinds |= {"send": _sending, "isend": _sending, "irecv": _receiving_later}
    for name, kind in kinds.items():
        setattr(dist, name, kind(getattr(dist, name)))
