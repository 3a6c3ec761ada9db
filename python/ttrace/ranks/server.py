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
import random
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ttrace.ranks import client, processes
from ttrace.ranks.calls import Call, ModuleFile

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


def receive(connection: socket.socket) -> tuple[list[int], bytes]:
    """The standard streams and the request that a client sent. Raises OSError if it went away."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    payload = b""
    while len(payload) < int.from_bytes(size, "little"):
        more = connection.recv(1 << 20)
        if not more:
            for stream in streams:
                os.close(stream)
            raise OSError("a client went away")
        payload += more
    return list(streams), payload


class _Request:
    """What a client asks for, with its connection and standard streams."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.streams, payload = receive(connection)
        asked = json.loads(payload)
        self.ranks: int = asked["ranks"]
        self.call: str = asked["call"]
        self.environment: dict[str, str] = asked["environment"]
        self.folder: str = asked["folder"]

    def close(self) -> None:
        self.connection.close()
        for stream in self.streams:
            os.close(stream)

    def take_over(self) -> None:
        """This process becomes one that the client had started."""
        for place, stream in enumerate(self.streams):
            os.dup2(stream, place)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()

    def end_with(self, group: int, caller: int) -> None:
        """Hands signals on, and ends all ranks if the client ends, or the process that keeps the
        server, whose end closes `caller`."""
        while True:
            ready, _, _ = select.select([self.connection, caller], [], [])
            if caller in ready:
                os.killpg(group, signal.SIGKILL)
            try:
                said = self.connection.recv(1)
            except OSError:
                said = b""
            if said == client.ENDED:
                os.kill(os.getpid(), signal.SIGTERM)
            elif said == client.KILLED:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                os.killpg(group, signal.SIGKILL)


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


def _launch(request: _Request) -> None:
    """In a copy of its own: the launcher of one start. Does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        caller = os.dup(0)
        os.set_inheritable(caller, False)
        request.take_over()
        with open(request.call, "rb") as file:
            call: Call = pickle.load(file)
        ranks = processes.start_ranks(request.ranks, lambda: _run(call))
        threading.Thread(target=request.end_with, args=(os.getpgid(0), caller), daemon=True).start()
        code = processes.wait_for(ranks)
    except BaseException as error:
        sys.stderr.write(f"ttrace: no ranks were started: {type(error).__name__}: {error}\n")
    with contextlib.suppress(OSError):
        request.connection.sendall(bytes([code & 255]))
    os._exit(code & 255)


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
            request = _Request(connection)
        except (OSError, ValueError, KeyError):
            connection.close()
            continue
        if os.fork() == 0:
            listener.close()
            _launch(request)
        request.close()


if __name__ == "__main__":
    sys.exit(main())
