"""What DistributedDataParallel makes of gradients, in a leg, of whose leaves it does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.capture import collective_calls

_FLAGS = ("require_backward_grad_sync", "require_forward_param_sync")


def reduces(model: AttachedModel) -> bool:
    """Whether a backward now is outside of `no_sync`."""
    return any(ddp.require_backward_grad_sync for ddp in model.ddps)


def joins(model: AttachedModel) -> bool:
    """Whether the loop runs within `join`: then others cannot be asked about an iteration."""
    configs = (getattr(ddp, "_join_config", None) for ddp in model.ddps)
    return any(getattr(config, "enable", False) for config in configs)


def sends_buffers(model: AttachedModel) -> bool:
    """Whether a forward of the loop's begins with the first rank's buffers on all."""
    return any(getattr(ddp, "broadcast_buffers", False) for ddp in model.ddps)


def is_followed(model: AttachedModel) -> bool:
    """Whether what is reduced is known: no hook of the user's does it."""
    return bool(model.ddps) and not any(getattr(ddp, "_comm_hooks", ()) for ddp in model.ddps)


@contextmanager
def reducing_nothing(model: AttachedModel) -> Iterator[Callable[[], None]]:
    """Inside, forwards and backwards are as in `no_sync` once what is given was called, and buffers
    stay as they were sent. A forward sets a flag by itself."""
    before = [(ddp, name, getattr(ddp, name)) for ddp in model.ddps for name in _FLAGS]

    def alone() -> None:
        for ddp in model.ddps:
            ddp.require_backward_grad_sync = ddp.require_forward_param_sync = False

    try:
        yield alone
    finally:
        for ddp, name, value in before:
            setattr(ddp, name, value)


_ABSENT, _DENSE, _SPARSE = range(3)


@torch.no_grad()
def reduce_as_before(model: AttachedModel, leaves: Sequence[torch.Tensor]) -> bool:
    """Averages their gradients over the ranks in place, in one order on all. A leaf that only other
    ranks have used gets theirs. False: there is one that cannot be averaged, and all stay."""
    group = model.ddps[0].process_group
    share = 1.0 / dist.get_world_size(group)
    wrapped = {id(parameter) for ddp in model.ddps for parameter in ddp.module.parameters()}
    leaves = [leaf for leaf in leaves if id(leaf) in wrapped]
    if not leaves:
        return True
    with collective_calls.unheard():
        kinds = torch.tensor([_kind(leaf) for leaf in leaves], device=leaves[0].device)
        dist.all_reduce(kinds, op=dist.ReduceOp.MAX, group=group)
        of_any_rank = kinds.tolist()
        if _SPARSE in of_any_rank:
            return False  # an embedding's, for one
        by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for leaf, kind in zip(leaves, of_any_rank, strict=True):
            if kind == _DENSE:
                if leaf.grad is None:
                    leaf.grad = torch.zeros_like(leaf)
                by_kind.setdefault((leaf.dtype, leaf.device), []).append(leaf.grad)
        for tensors in by_kind.values():
            flat = _flatten_dense_tensors(tensors).mul_(share)
            dist.all_reduce(flat, group=group)
            for tensor, reduced in zip(
                tensors, _unflatten_dense_tensors(flat, tensors), strict=True
            ):
                tensor.copy_(reduced)
    return True


def _kind(leaf: torch.Tensor) -> int:
    if leaf.grad is None:
        return _ABSENT
    return _DENSE if leaf.grad.layout is torch.strided else _SPARSE
