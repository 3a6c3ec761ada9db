"""The servers that this process keeps, and the commands that start launches on them."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from ttrace.ranks.calls import Call, ModuleFile
from ttrace.ranks.server import Modules, file_state

_MOST = 4  # each has modules of its own in memory
_PATIENCE_S = 300  # for what the functions' modules import
_CLIENT = Path(__file__).with_name("client.py")

_Key = tuple[object, ...]


class RankServer:
    """One process that has imported what some functions need. Ends with this one."""

    def __init__(self, modules: Modules) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ttrace-ranks-"))
        self._calls = 0
        self._files: dict[str, list[int]] | None = None  # that it has imported, as they were then
        self._wanted = self._folder / "modules"
        self._wanted.write_bytes(pickle.dumps(modules))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ttrace.ranks.server", str(self._socket), str(self._wanted)],
            stdin=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            start_new_session=True,  # Ctrl-C is for who asked, who tells the ranks
        )

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    @property
    def process(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def has_imported(self) -> bool:
        return Path(f"{self._wanted}.files").exists()

    @property
    def is_current(self) -> bool:
        """Whether the files that it imported are what they were then. While it imports they are."""
        if self._files is None and self.has_imported:
            noted = Path(f"{self._wanted}.files")
            self._files = json.loads(noted.read_text(errors="surrogateescape"))
        return self._files is None or all(file_state(f) == at for f, at in self._files.items())

    def command(self, call: Call, ranks: int) -> list[str]:
        """The words that start a launch of it."""
        until = time.monotonic() + _PATIENCE_S
        while not self._socket.exists():
            if not self.runs or time.monotonic() > until:
                raise RuntimeError("ttrace: the process that starts ranks did not start")
            time.sleep(0.01)
        self._calls += 1
        file = self._folder / f"call-{self._calls}"
        file.write_bytes(pickle.dumps(call))
        return [sys.executable, "-S", str(_CLIENT), str(self._socket), str(ranks), str(file)]

    def end(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class KeptServers:
    """One for each set of modules that functions come from; those used last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[_Key, RankServer] = {}
        self._owner = os.getpid()

    def server(self, modules: Sequence[ModuleFile]) -> RankServer:
        """That of functions of these modules, started now if there is none, or if a file that it
        has imported has changed since."""
        search = tuple(p or os.getcwd() for p in sys.path)
        key: _Key = (search, *dict.fromkeys(modules))
        with self._lock:
            if self._owner != os.getpid():  # a fork: they are not its own
                self._servers, self._owner = {}, os.getpid()
            server = self._servers.pop(key, None)
            if server is not None and not (server.runs and server.is_current):
                server.end()
                server = None
            if server is None:
                atexit.unregister(self.end)
                atexit.register(self.end)
                server = RankServer(Modules(search, tuple(dict.fromkeys(modules))))
            self._servers[key] = server
            if len(self._servers) > _MOST:
                self._servers.pop(next(iter(self._servers))).end()
            return server

    def end(self) -> None:
        if self._owner != os.getpid():
            return
        for server in self._servers.values():
            server.end()
        self._servers.clear()
