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

import atexit
import os
import runpy
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

import rank_server

# Below the ports that the system gives to whoever asks for any: between our look and rank 0's
# nobody gets this one.
_PORTS = range(12_000, 32_000)
_PATIENCE_S = 20


def launcher(processes: int) -> list[str]:
    """The words in front of a script and its arguments."""
    return [sys.executable, os.path.abspath(__file__), str(processes)]


def free_port() -> int:
    for number in range(len(_PORTS)):
        port = _PORTS[(os.getpid() * 7 + number) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit("launch_ranks: no port is free")


class Rank:
    """One process, a copy of this one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def code(self) -> int | None:
        """Its exit status; of one that a signal ended 128 and its number; None: it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = 128 - code if code < 0 else code
        return self._code

    def signal(self, number: int) -> None:
        if self.code() is None:
            os.kill(self._pid, number)


def wait_for(ranks: list[Rank]) -> int:
    def hand_on(number: int, _frame: object) -> None:
        for rank in ranks:
            rank.signal(number)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, hand_on)
    failed, until = 0, float("inf")
    while any(rank.code() is None for rank in ranks):
        if not failed and any(codes := [rank.code() for rank in ranks]):
            failed = next(code for code in codes if code)
            hand_on(signal.SIGTERM, None)
            until = time.monotonic() + _PATIENCE_S
        if time.monotonic() > until:
            hand_on(signal.SIGKILL, None)
        time.sleep(0.01)
    return failed or next((code for rank in ranks if (code := rank.code())), 0)


def run_as_main(script: str) -> NoReturn:
    """Runs the script, and ends the process as a script's end does, but for taking the interpreter
    down: with torch 2.13 that aborts about one rank in ten of plain DDP over Gloo, under torchrun
    and without capture too. A thread of the process group's lets go of its last all-reduce, which
    holds a Python object, asks for the interpreter's lock, is made to exit there, and a destructor
    may not be unwound ("terminate called without an active exception").

    Ranks share a pipe: what a script prints in one call arrives in one piece, also where the
    environment asks for output without buffers.
    """
    code = 0
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


def part(processes: int, script: str) -> list[Rank]:
    """Copies of this process that run the script; one, that is no rank, of 0 processes."""
    if processes:
        os.environ |= {
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
    ranks = []
    for rank in range(max(1, processes)):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            if processes:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            run_as_main(script)
        ranks.append(Rank(pid))
    return ranks


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
