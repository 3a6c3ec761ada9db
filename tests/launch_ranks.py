#!/usr/bin/env python3
"""Starts the ranks of a run on this machine, as torchrun does, and little more.

    python tests/launch_ranks.py N SCRIPT [ARGUMENT ...]

torchrun imports torch, which takes as long as many a test's training. Ends with the exit status of
the first rank that fails, once the others are ended too; a signal is handed on to all.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

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


def main() -> int:
    processes, command = int(sys.argv[1]), [sys.executable, *sys.argv[2:]]
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    ranks = [
        subprocess.Popen(
            command, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(processes)
    ]

    def hand_on(number: int, _frame: object) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, hand_on)
    failed, until = 0, float("inf")
    while any(rank.poll() is None for rank in ranks):
        codes = [rank.poll() for rank in ranks]
        if not failed and any(codes):
            failed = next(code for code in codes if code)
            hand_on(signal.SIGTERM, None)
            until = time.monotonic() + _PATIENCE_S
        if time.monotonic() > until:
            hand_on(signal.SIGKILL, None)
        time.sleep(0.01)
    failed = failed or next((code for code in (rank.poll() for rank in ranks) if code), 0)
    return 128 - failed if failed < 0 else failed


if __name__ == "__main__":
    sys.exit(main())
