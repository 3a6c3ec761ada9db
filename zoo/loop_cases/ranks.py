"""What the loops of this folder have in common: the ranks, and how a model gets to them."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn


def start() -> tuple[int, int]:
    """This rank and how many there are; (0, 1) where no launcher says otherwise."""
    torch.manual_seed(0)
    if "RANK" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def data_parallel(net: nn.Module) -> nn.Module:
    """The model itself in a run of one rank, as most loops have it."""
    several = dist.is_initialized() and dist.get_world_size() > 1
    return nn.parallel.DistributedDataParallel(net) if several else net


def total(value: torch.Tensor) -> torch.Tensor:
    """Its sum over all ranks. Without a gradient: for counts and statistics."""
    value = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
    return value


def dealt(dataset: object, rows: int, rank: int, ranks: int, **how: object):
    """A loader of global batches of `rows`, dealt out in turn: r, r + ranks, ... to rank r."""
    sampler = torch.utils.data.DistributedSampler(dataset, ranks, rank, shuffle=False)
    return torch.utils.data.DataLoader(dataset, rows // ranks, sampler=sampler, **how)


def part(rows: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """This rank's share of a global batch, in one block."""
    return rows.chunk(ranks)[rank]


def end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
