"""What a client asks for, in the process that starts ranks: see client.py.

A request comes with the client's standard streams, and is served by a copy of the process that got
it, which becomes the launcher of one start: what a client is told is the exit status of its ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from ttrace.ranks import client, processes


class Request:
    """With its connection and streams."""

    def __init__(self, connection: socket.socket, streams: list[int], payload: bytes) -> None:
        """Raises ValueError or KeyError if it is none."""
        self.connection = connection
        self.streams = streams
        self.asked: dict[str, Any] = json.loads(payload)
        self.environment: dict[str, str] = self.asked["environment"]
        self.folder: str = self.asked["folder"]

    @staticmethod
    def received(connection: socket.socket) -> tuple[list[int], bytes]:
        """Streams and payload. Raises OSError if the client went away."""
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

    def close(self) -> None:
        self.connection.close()
        for stream in self.streams:
            os.close(stream)

    def answer(self, code: int) -> None:
        """The exit status. A client that is gone needs none."""
        with contextlib.suppress(OSError):
            self.connection.sendall(bytes([code & 255]))

    def take_over(self) -> None:
        """This process becomes one that the client had started."""
        for place, stream in enumerate(self.streams):
            os.dup2(stream, place)
            os.close(stream)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()

    def hand_on(self, keeper: int | None) -> None:
        """To this process, signals that the client gets. Ends it and all ranks if the client ends,
        or whoever keeps the server, whose end closes `keeper`."""
        watched = [self.connection, *([] if keeper is None else [keeper])]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if keeper in ready:
                os.killpg(0, signal.SIGKILL)
            try:
                said = self.connection.recv(1)
            except OSError:
                said = b""
            if said == client.ENDED:
                os.kill(os.getpid(), signal.SIGTERM)
            elif said == client.KILLED:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                os.killpg(0, signal.SIGKILL)


def launch(
    request: Request, start: Callable[[], list[processes.Rank]], keeper: int | None = None
) -> NoReturn:
    """In a copy of its own: starts ranks and waits for them. What they leave behind, such as a
    child that they have not waited for, ends with them."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request.take_over()
        ranks = start()
        threading.Thread(target=request.hand_on, args=(keeper,), daemon=True).start()
        code = processes.wait_for(ranks)
    except BaseException as error:
        sys.stderr.write(f"ttrace: no ranks were started: {type(error).__name__}: {error}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    request.answer(code)
    os.killpg(0, signal.SIGKILL)
    os._exit(code & 255)
