"""How much memory a rerun may take, and how much it will."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_UNKNOWN = 1 << 62
_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes that one rank's leg may take on `device`. What ranks of one machine share is divided
    among them, as all of them run the leg."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + (
            torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        )
    neighbours = os.environ.get("LOCAL_WORLD_SIZE", "1")
    ranks = int(neighbours) if neighbours.isdecimal() else 1
    return min(_machine(), _container()) // max(ranks, 1)


class Peak:
    """How much memory an iteration takes at most, without touching the counters of the process.

    The system's own high-water mark tells it if the iteration raised it. If something before was
    higher (a checkpoint that was loaded), there are samples at the places where most is held."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mark = self._high_water()
        self._sampled = 0
        self._last = -1

    def sample(self, micro_batch: int) -> None:
        """To be called in the backward; looks once a micro-batch, at its beginning."""
        if micro_batch != self._last:
            self._last = micro_batch
            self._sampled = max(self._sampled, self._held())

    def above_now(self) -> int:
        """Bytes that the iteration needed beyond what is held now, after it."""
        mark = self._high_water()
        peak = mark if mark > self._mark else self._sampled
        return max(0, peak - self._held())

    def _held(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        return _line("/proc/self/status", "VmRSS", 0)

    def _high_water(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        # Not getrusage: that is the starting process's, if it was larger.
        return _line("/proc/self/status", "VmHWM", 0)


def _machine() -> int:
    return _line("/proc/meminfo", "MemAvailable", _UNKNOWN)


def _line(file: str, name: str, otherwise: int) -> int:
    """Bytes of a line "name:  12345 kB"."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return otherwise
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return otherwise


def _container() -> int:
    """A container ends a process at its own limit. What only caches files counts as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        statistics = (_CGROUP / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):
        return _UNKNOWN
    if not limit.isdecimal():
        return _UNKNOWN
    cached = sum(int(line.split()[1]) for line in statistics if line.startswith("inactive_file "))
    return max(0, int(limit) - used + cached)
