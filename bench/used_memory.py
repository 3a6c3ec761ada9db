"""Memory that the host of a virtual machine has given already, and does not take back.

A virtual machine gets a page of memory from its host when it is touched for the first time, which
takes up to ten times as long as to write it (3 s a GB, where a RAM disk takes 0.4), and gives what
is free back to it within seconds. That is the machine's cost, and whoever writes much has it. It
deals in blocks of 2 MiB: where one page of each is in use, the others stay.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

KEPT = 64  # pages: one of so many stays in use


@contextlib.contextmanager
def held_memory(fraction: float = 0.8) -> Iterator[None]:
    """Touches this part of the memory that is free, and frees all of it again but for a 64th, which
    is in use until the end."""
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    stretch = KEPT * mmap.PAGESIZE
    count = max(1, int(free * 1024 * fraction / stretch))
    with mmap.mmap(-1, count * stretch, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
        for begin in range(0, len(memory), stretch):
            memory.madvise(mmap.MADV_DONTNEED, begin + mmap.PAGESIZE, stretch - mmap.PAGESIZE)
        yield
