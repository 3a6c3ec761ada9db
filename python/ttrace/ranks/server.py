"""The process that is kept: it has imported what the functions need, and forks launches.

    python -m ttrace.ranks.server SOCKET MODULES    # MODULES: a pickled file, see Modules

It never computes: the threads of who does would not be in a copy. It ends when whoever started it
does (its standard input closes).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ttrace.ranks import processes
from ttrace.ranks.calls import Call, ModuleFile
from ttrace.ranks.requests import Request, launch

# What an optimizer imports when it is made, and capture when it starts.
_ALWAYS = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.distributed.tensor.parallel",
    "ttrace.adapters.torch.attach",
)


@dataclass(frozen=True)
class Modules:
    """What is imported before the first launch."""

    search: Sequence[str]  # sys.path
    of_functions: Sequence[ModuleFile]


def _run(call: Call) -> None:
    """In a rank."""
    from ttrace.capture import boot

    boot.install()
    if call.backend is not None and "RANK" in os.environ:
        _make_process_group(call.backend)
    call.run()


def _make_process_group(backend: str) -> None:
    import torch
    import torch.distributed as dist

    devices = torch.cuda.device_count()
    if backend == "auto":
        backend = "nccl" if devices >= int(os.environ["WORLD_SIZE"]) else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend)


def _serve(request: Request) -> NoReturn:
    """In a copy of its own. What keeps the server holds its standard input open."""
    keeper = os.dup(0)
    os.set_inheritable(keeper, False)

    def start() -> list[processes.Rank]:
        with open(request.asked["call"], "rb") as file:
            call: Call = pickle.load(file)
        return processes.start_ranks(request.asked["ranks"], lambda: _run(call))

    launch(request, start, keeper)


def _note_files(path: str) -> None:
    """Which files were imported, so that a change of one is noticed; there once it is whole."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as out:
        json.dump({file: file_state(file) for file in files if isinstance(file, str)}, out)
    os.rename(f"{path}.new", path)


def file_state(file: str) -> list[int]:
    """Another one after a change; empty if it is not there."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(file)
        return [status.st_mtime_ns, status.st_size]
    return []


def _import(modules: Modules) -> None:
    sys.path[:] = list(modules.search)
    for name in _ALWAYS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for module in modules.of_functions:
        # What fails here fails in the ranks too, where somebody is told.
        with contextlib.suppress(Exception):
            module.load()
    _note_files(f"{sys.argv[2]}.files")
    # Copies neither look through what was imported for garbage nor have its memory copied for it.
    gc.collect()
    gc.freeze()


def main() -> int:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with open(sys.argv[2], "rb") as file:
        _import(pickle.load(file))
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return 0  # closed: nobody writes there
        connection, _ = listener.accept()
        try:
            request = Request(connection, *Request.received(connection))
        except (OSError, ValueError, KeyError):
            connection.close()
            continue
        if os.fork() == 0:
            listener.close()
            _serve(request)
        request.close()


if __name__ == "__main__":
    sys.exit(main())
