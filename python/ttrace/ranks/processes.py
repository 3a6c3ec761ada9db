"""Ranks of one launch on this machine: copies of the process that starts them."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

# Below the ports that the system gives to whoever asks for any: between our look and rank 0's
# nobody gets this one.
_PORTS = range(12_000, 32_000)
_PATIENCE_S = 20  # between asking the others to end, and ending them


def free_port() -> int:
    """One that nobody listens on now. Raises OSError if there is none."""
    for number in range(len(_PORTS)):
        port = _PORTS[(os.getpid() * 7 + number) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


class Rank:
    """One process, a child of this one."""

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


def start_ranks(count: int, run: Callable[[], None]) -> list[Rank]:
    """Copies of this process, each with the environment of its rank, that call `run` and end as a
    script would. `count` 0: one process that is no rank."""
    if count:
        os.environ |= {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
    ranks = []
    for rank in range(max(1, count)):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            if count:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            end_as_script(run)
        ranks.append(Rank(pid))
    return ranks


def wait_for(ranks: list[Rank]) -> int:
    """The exit status of the first rank that fails, once the others are ended too. A signal is
    handed on to all."""

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


def end_as_script(run: Callable[[], None]) -> NoReturn:
    """Calls `run` and ends the process as a script's end does, but for taking the interpreter down:
    with torch 2.13 that aborts about one rank in ten of plain DDP over Gloo, under torchrun and
    without capture too. A thread of the process group's lets go of its last all-reduce, which holds
    a Python object, asks for the interpreter's lock, is made to exit there, and a destructor may
    not be unwound ("terminate called without an active exception").

    Ranks share a pipe: what is printed in one call arrives in one piece, also where the environment
    asks for output without buffers.
    """
    code = 0
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    try:
        run()
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
