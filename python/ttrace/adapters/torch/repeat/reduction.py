"""What DistributedDataParallel makes of gradients, in a leg, of whose leaves it does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.capture import collective_calls

_FLAGS = ("require_backward_grad_sync", "require_forward_param_sync")


def reduces(model: AttachedModel) -> bool:
    """Whether a backward now is outside of `no_sync`."""
    return model.ddp is not None and bool(model.ddp.require_backward_grad_sync)


def is_followed(model: AttachedModel) -> bool:
    """Whether what is reduced is known: no hook of the user's does it."""
    return model.ddp is not None and not getattr(model.ddp, "_comm_hooks", ())


@contextmanager
def reducing_nothing(model: AttachedModel) -> Iterator[Callable[[], None]]:
    """Inside, forwards and backwards are as in `no_sync` once what is given was called, and buffers
    stay as they were sent. A forward sets a flag by itself."""
    ddp = model.ddp
    before = {} if ddp is None else {name: getattr(ddp, name) for name in _FLAGS}

    def alone() -> None:
        if ddp is not None:
            ddp.require_backward_grad_sync = ddp.require_forward_param_sync = False

    try:
        yield alone
    finally:
        for name, value in before.items():
            setattr(ddp, name, value)


@torch.no_grad()
def reduce_as_before(model: AttachedModel, gradients: Iterable[torch.Tensor]) -> bool:
    """Averages them over the ranks in place, the same tensors in the same order on all. False:
    there is one that cannot be, and they stay."""
    assert model.ddp is not None
    group = model.ddp.process_group
    share = 1.0 / dist.get_world_size(group)
    by_kind: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for gradient in gradients:
        if gradient.layout is not torch.strided:
            return False  # on all ranks alike: an embedding's, for one
        by_kind.setdefault((gradient.dtype, gradient.device), []).append(gradient)
    with collective_calls.unheard():
        for tensors in by_kind.values():
            flat = _flatten_dense_tensors(tensors).mul_(share)
            dist.all_reduce(flat, group=group)
            for tensor, reduced in zip(
                tensors, _unflatten_dense_tensors(flat, tensors), strict=True
            ):
                tensor.copy_(reduced)
    return True
