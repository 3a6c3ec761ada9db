#!/usr/bin/env python3
"""Starts the ranks of a run on this machine, as torchrun does, and little more.

    python tests/launch_ranks.py N SCRIPT [ARGUMENT ...]   # N = 0: one process that is no rank

To import torch and a framework takes as long as many a test's training. So what a script imports is
imported once, before the ranks part: they are copies of a process that ran the script's module, all
but what it does as `__main__`. (torchrun starts each by itself, and imports torch once more.) A
script that does not ask whether it is `__main__` is left to the ranks. In a run of tests that
process is kept for the next start (rank_server.py). Ends with the exit status of
the first rank that fails, once the others are ended too; a signal is handed on to all.
"""

from __future__ import annotations

import os
import runpy
import sys

import rank_server
from ttrace.ranks.processes import Rank, start_ranks, wait_for


def launcher(processes: int) -> list[str]:
    """The words in front of a script and its arguments."""
    return [sys.executable, os.path.abspath(__file__), str(processes)]


def part(processes: int, script: str) -> list[Rank]:
    """Copies of this process that run the script; one, that is no rank, of 0 processes."""
    return start_ranks(processes, lambda: runpy.run_path(script, run_name="__main__"))


def main() -> int:
    code = rank_server.start_elsewhere(sys.argv[1:])
    if code is not None:
        return code
    processes, script = int(sys.argv[1]), sys.argv[2]
    # As Python itself leaves them to a script.
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if processes > 1 and rank_server.asks(script):
        runpy.run_path(script, run_name="__ranks__")
    return wait_for(part(processes, script))


if __name__ == "__main__":
    sys.exit(main())
