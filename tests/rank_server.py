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
import gc
import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from ttrace.ranks import client, processes
from ttrace.ranks.requests import Request, launch

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


def _script(request: Request) -> str:
    return os.path.join(request.folder, request.asked["words"][1])


def _become_fresh(request: Request, paths: list[str]) -> None:
    """This copy, which has the request's environment, becomes what a fresh process would be.
    `paths`: of PYTHONPATH before."""
    after = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    rest = [p for p in sys.path[1:] if p not in paths]
    sys.path[:] = [os.path.dirname(os.path.abspath(_script(request))), *after, *rest]
    sys.argv[:] = request.asked["words"][1:]
    sys.path_importer_cache.clear()
    sys.modules.pop("sitecustomize", None)
    for folder in after:
        if os.path.exists(os.path.join(folder, "sitecustomize.py")):
            runpy.run_path(os.path.join(folder, "sitecustomize.py"), run_name="sitecustomize")
            break


def _serve(request: Request) -> NoReturn:
    """In a copy of its own."""
    before = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]

    def start() -> list[processes.Rank]:
        _become_fresh(request, before)
        import launch_ranks

        count, script = request.asked["words"][:2]
        return launch_ranks.part(int(count), script)

    launch(request, start)


class _Template:
    """A process that imported what one script imports."""

    def __init__(self, request: Request, modules: tuple[str, ...] | None) -> None:
        """`modules`: what it imports; None: all that the script does but as `__main__`."""
        # Once, for all of them, and only if a test starts ranks at all.
        import torch.distributed  # noqa: F401

        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection = mine
        if os.fork() == 0:
            mine.close()
            sys.argv[:] = request.asked["words"][1:]
            sys.path[0] = os.path.dirname(os.path.abspath(_script(request)))
            with contextlib.suppress(BaseException):
                if modules is None:
                    runpy.run_path(_script(request), run_name="__ranks__")
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

    def start(self, request: Request, payload: bytes) -> None:
        socket.send_fds(self._connection, [b"!"], [request.connection.fileno(), *request.streams])
        self._connection.send(payload)


def _serve_copies(connection: socket.socket) -> None:
    # Copies neither look through what was imported for garbage nor have its memory copied for it.
    gc.collect()
    gc.freeze()
    while connection.recv(1) == b"?":
        connection.send(b"y")
        _, fds, _, _ = socket.recv_fds(connection, 1, 4)
        payload = connection.recv(1 << 22)
        if os.fork() == 0:
            _serve(Request(socket.socket(fileno=fds[0]), list(fds[1:]), payload))
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
            streams, payload = Request.received(connection)
            request = Request(connection, streams, payload)
        except (OSError, ValueError, KeyError):
            connection.close()
            continue
        theirs = {"OMP_NUM_THREADS": "1", **_fixed(request.environment)}
        try:
            if theirs != mine:
                other = {name for name, _ in theirs.items() ^ mine.items()}
                raise OSError(f"another environment: {' '.join(sorted(other))}")
            status = os.stat(_script(request))
            modules = None if asks(_script(request)) else imported(_script(request))
            key = modules or (_script(request), status.st_mtime_ns, status.st_size)
            template = templates.pop(key, None) or _Template(request, modules)
            template.wait_until_ready()
            templates[key] = template
            if len(templates) > _MOST_TEMPLATES:
                templates.pop(next(iter(templates))).end()
            # Who went away meanwhile has a start all the same: the template waits for it, and what
            # starts sees that nobody is there.
            with contextlib.suppress(OSError):
                connection.send(b"y")
            template.start(request, payload)
        except OSError as reason:
            with open(f"{sys.argv[1]}.refused", "a") as refused:
                refused.write(f"{_script(request)}: {reason}\n")
            with contextlib.suppress(OSError):
                connection.send(b"n")
        request.close()


if __name__ == "__main__":
    sys.exit(main())
