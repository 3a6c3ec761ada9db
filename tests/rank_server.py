"""Keeps what scripts import, for a whole run of tests: starting a script is then a fork.

To import torch and megatron-core takes longer than what most tests train. This process imports a
script's modules once (all of the script but what it does as `__main__`; of one that does not ask
whether it is that, the installed modules that it names first of all), keeps that process, and each
start of the script is a copy of it.
`launch_ranks.py` asks for one, but where its environment is another than this one's. Capture then
finds torch imported already, and looks for who copied names, as it does in an interpreter that
somebody else started; that a fresh one is captured as well is what tests with torchrun show, and
`make demo`.

    with serving(): ...   # TEST_RANKS names its socket
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from ttrace.ranks import client
from ttrace.ranks.server import receive

SOCKET = "TEST_RANKS"
# What may differ between this process and one that it stands for: these, and what begins so.
_FREE = {
    SOCKET,
    "PATH",
    "PYTHONPATH",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "PWD",
    "OLDPWD",
    "_",
    "SHLVL",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    # Torch writes these where it compiles, as it does in tests themselves.
    "TORCHINDUCTOR_CACHE_DIR",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
}
_FREE_PREFIXES = ("TTRACE_", "PYTEST_", "ZOO_")
# What an optimizer imports when it is made, and capture when it starts.
_ALWAYS = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")
_KEPT = {"torch", "numpy", "transformers", "accelerate", "lightning", "datasets", "trl", "peft"}
_MOST_TEMPLATES = 20  # those used last; each has modules of its own in memory
_FOLDER_OF_TESTS = os.path.dirname(os.path.abspath(__file__))


def _fixed(environment: dict[str, str]) -> dict[str, str]:
    """What has to be the same: torch reads its own when it is imported."""
    return {
        key: value
        for key, value in environment.items()
        if not (key in _FREE or key.startswith(_FREE_PREFIXES))
    }


def asks(script: str) -> bool:
    """Whether a script asks whether it is `__main__`."""
    try:
        return "\nif __name__ ==" in Path(script).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def imported(script: str) -> tuple[str, ...]:
    """The installed modules that a script imports before anything else can happen, without those
    of tests."""
    try:
        body = ast.parse(Path(script).read_text()).body
    except (OSError, UnicodeDecodeError, SyntaxError):
        return ()
    names = set(_ALWAYS)
    for line in body:
        if isinstance(line, ast.Import):
            names |= {alias.name for alias in line.names}
        elif isinstance(line, ast.ImportFrom) and line.module and not line.level:
            names.add(line.module)
    return tuple(sorted(name for name in names if name.partition(".")[0] in _KEPT))


def start_elsewhere(words: list[str]) -> int | None:
    """Has `words` (as main of launch_ranks.py is given) started by the server, and waits.

    Returns the exit status; None: there is no server for this.
    """
    path = os.environ.get(SOCKET)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        request = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
        client.send(connection, request)
        if connection.recv(1) != b"y":
            return None
    except OSError:
        return None

    code = client.wait(connection)
    return 1 if code is None else code


@contextlib.contextmanager
def serving() -> Iterator[Callable[[], Counter[str]]]:
    """A server for as long as the block lasts; those who start in it find it. Gives a function that
    says for which reasons it sent how many away, who then imported everything themselves."""
    with tempfile.TemporaryDirectory(prefix="ttrace-ranks-") as folder:
        path = os.path.join(folder, "socket")
        server = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), path],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            start_new_session=True,
        )
        os.environ[SOCKET] = path

        def refused() -> Counter[str]:
            lines = Path(f"{path}.refused")
            return Counter(lines.read_text().splitlines() if lines.exists() else ())

        try:
            yield refused
        finally:
            del os.environ[SOCKET]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@dataclasses.dataclass
class _Request:
    """What a client asked for, and its connection and standard streams."""

    connection: socket.socket
    streams: list[int]
    payload: bytes

    def __post_init__(self) -> None:
        asked = json.loads(self.payload)
        self.words: list[str] = asked["words"]
        self.environment: dict[str, str] = asked["environment"]
        self.folder: str = asked["folder"]

    @staticmethod
    def received(connection: socket.socket) -> _Request:
        streams, payload = receive(connection)
        return _Request(connection, streams, payload)

    def script(self) -> str:
        return os.path.join(self.folder, self.words[1])

    def close(self) -> None:
        self.connection.close()
        for stream in self.streams:
            os.close(stream)


def _become_fresh(request: _Request) -> None:
    """This copy becomes what a fresh process would be."""
    for place, stream in enumerate(request.streams):
        os.dup2(stream, place)
        os.close(stream)
    before = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    after = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    rest = [p for p in sys.path[1:] if p not in before]
    sys.path[:] = [os.path.dirname(os.path.abspath(request.script())), *after, *rest]
    sys.argv[:] = request.words[1:]
    sys.path_importer_cache.clear()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules.pop("sitecustomize", None)
    for folder in after:
        if os.path.exists(os.path.join(folder, "sitecustomize.py")):
            runpy.run_path(os.path.join(folder, "sitecustomize.py"), run_name="sitecustomize")
            break


def _end_with(request: _Request, group: int) -> None:
    """Ends all ranks if the client ends, and hands its signals on."""
    while True:
        try:
            said = request.connection.recv(1)
        except OSError:
            said = b""
        if said == client.ENDED:
            os.kill(os.getpid(), signal.SIGTERM)
        elif said == client.KILLED:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            os.killpg(group, signal.SIGKILL)


def _launch(request: _Request) -> None:
    """In a copy of its own: the launcher of one start. Does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become_fresh(request)
        import launch_ranks

        ranks = launch_ranks.part(int(request.words[0]), request.words[1])
        threading.Thread(target=_end_with, args=(request, os.getpgid(0)), daemon=True).start()
        code = launch_ranks.wait_for(ranks)
    except BaseException as error:
        sys.stderr.write(f"rank_server: {type(error).__name__}: {error}\n")
    with contextlib.suppress(OSError):
        request.connection.sendall(bytes([code & 255]))
    os._exit(code & 255)


class _Template:
    """A process that imported what one script imports."""

    def __init__(self, request: _Request, modules: tuple[str, ...] | None) -> None:
        """`modules`: what it imports; None: all that the script does but as `__main__`."""
        # Once, for all of them, and only if a test starts ranks at all.
        import torch.distributed  # noqa: F401

        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection = mine
        if os.fork() == 0:
            mine.close()
            sys.argv[:] = request.words[1:]
            sys.path[0] = os.path.dirname(os.path.abspath(request.script()))
            with contextlib.suppress(BaseException):
                if modules is None:
                    runpy.run_path(request.script(), run_name="__ranks__")
                for name in modules or ():
                    importlib.import_module(name)
                request.close()
                _serve_copies(its)
            os._exit(1)
        its.close()

    def wait_until_ready(self) -> None:
        """Raises OSError where the script could not be imported."""
        self._connection.send(b"?")
        if self._connection.recv(1) != b"y":
            raise OSError("its process ended")

    def end(self) -> None:
        # Later templates have the connection open, too: that it closes would tell nothing.
        self._connection.send(b"x")
        self._connection.close()

    def start(self, request: _Request) -> None:
        socket.send_fds(self._connection, [b"!"], [request.connection.fileno(), *request.streams])
        self._connection.send(request.payload)


def _serve_copies(connection: socket.socket) -> None:
    # Copies neither look through what was imported for garbage nor have its memory copied for it.
    gc.collect()
    gc.freeze()
    while connection.recv(1) == b"?":
        connection.send(b"y")
        _, fds, _, _ = socket.recv_fds(connection, 1, 4)
        payload = connection.recv(1 << 22)
        if os.fork() == 0:
            request = _Request(socket.socket(fileno=fds[0]), list(fds[1:]), payload)
            _launch(request)
        for fd in fds:
            os.close(fd)


def main() -> int:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.path[0] = _FOLDER_OF_TESTS
    import launch_ranks  # noqa: F401  (copies use it, wherever their paths lead)

    mine = _fixed(dict(os.environ))
    templates: dict[tuple[object, ...], _Template] = {}
    while True:
        connection, _ = listener.accept()
        try:
            request = _Request.received(connection)
        except (OSError, ValueError):
            connection.close()
            continue
        theirs = {"OMP_NUM_THREADS": "1", **_fixed(request.environment)}
        try:
            if theirs != mine:
                other = {name for name, _ in theirs.items() ^ mine.items()}
                raise OSError(f"another environment: {' '.join(sorted(other))}")
            status = os.stat(request.script())
            modules = None if asks(request.script()) else imported(request.script())
            key = modules or (request.script(), status.st_mtime_ns, status.st_size)
            template = templates.pop(key, None) or _Template(request, modules)
            template.wait_until_ready()
            templates[key] = template
            if len(templates) > _MOST_TEMPLATES:
                templates.pop(next(iter(templates))).end()
            connection.send(b"y")
            template.start(request)
        except OSError as reason:
            with open(f"{sys.argv[1]}.refused", "a") as refused:
                refused.write(f"{request.words[1]}: {reason}\n")
            with contextlib.suppress(OSError):
                connection.send(b"n")
        request.close()


if __name__ == "__main__":
    sys.exit(main())
