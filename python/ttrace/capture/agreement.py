"""Decisions that all ranks must share before they enter a rerun.

The only collectives of this tool beside one gather at start, and only if legs were asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

from ttrace.capture import collective_calls


def all_agree(mine: bool) -> bool:
    """Whether every rank says yes. Waits for all of them."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return mine
    vote = torch.tensor([int(mine)], dtype=torch.int32, device=_device())
    with collective_calls.unheard():
        dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item())


def same_everywhere(legs: tuple[str, ...]) -> tuple[str, ...]:
    """The leg list of rank 0: an environment that differs between nodes must not hang the job."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return legs
    box = [legs]
    with collective_calls.unheard():
        dist.broadcast_object_list(box, src=0, device=_device())
    return tuple(box[0])


def free_memory(device: torch.device) -> int:
    """Bytes that a leg may take on `device`."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + (
            torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        )
    if not os.path.exists("/proc/meminfo"):
        return 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def _device() -> torch.device:
    """Where the default group's backend takes tensors from."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
