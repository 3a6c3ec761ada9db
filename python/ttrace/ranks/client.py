"""The command of a launch: asks the server for ranks, waits, and ends as they did.

    python -S client.py SOCKET RANKS CALL    # RANKS 0: one process that is no rank

Runs as a script and imports what starts fastest: it is started once for each leg.
"""

import contextlib
import json
import os
import signal
import socket
import sys

ENDED, KILLED = b"t", b"k"  # signals that are handed on


def send(connection: socket.socket, request: dict) -> None:
    """With this process's standard streams. Raises OSError."""
    payload = json.dumps(request).encode()
    socket.send_fds(connection, [len(payload).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(payload)


def wait(connection: socket.socket) -> "int | None":
    """The exit status of the ranks, which get this process's signals; None: the server ended."""

    def hand_on(number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):
            connection.send(KILLED if number == signal.SIGINT else ENDED)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, hand_on)
    answer = connection.recv(1)
    return answer[0] if answer else None


def main() -> int:
    path, ranks, call = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        request = {
            "ranks": int(ranks),
            "call": call,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
        }
        send(connection, request)
    except OSError as error:
        print(f"ttrace: the process that starts ranks is gone: {error}", file=sys.stderr)
        return 1

    code = wait(connection)
    if code is None:
        print("ttrace: the process that starts ranks ended", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
