"""What a process of the run leaves behind outside any rank's trace: that capture was loaded, why it
refused, and of what the process died. `ttrace` reads it where there is no trace to read.

A line of JSON each in `<trace>/messages.jsonl`, appended with one write, so that processes need no
lock. Nothing that goes wrong here reaches the user's program.
"""

from __future__ import annotations

import atexit
import json
import os
import sys

_LONGEST = 2000
_ran: dict[str, int] = {}  # by the trace's folder


def ran(folder: str, iterations: int) -> None:
    """Capture into `folder` is attached to a loop, which ran so many iterations, captured or
    not."""
    _ran[folder] = iterations


def leave(folder: str, kind: str, **values: object) -> None:
    """Appends one message."""
    message = {"kind": kind, "pid": os.getpid(), "rank": os.environ.get("RANK", ""), **values}
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(os.path.join(folder, "messages.jsonl"), flags, 0o644)
        try:
            os.write(file, (json.dumps(message) + "\n").encode())
        finally:
            os.close(file)
    except OSError:
        pass


def uncaught_exception() -> str:
    """The exception of which this process dies, in one line; "" if it dies of none. To be called
    while the interpreter exits."""
    # Set by the interpreter when it prints a traceback.
    return words_of(getattr(sys, "last_value", None))


def words_of(error: BaseException | None) -> str:
    """In one line; "" of none."""
    if error is None:
        return ""
    # The last line, where the message is the traceback of another process.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    nested = any(line.startswith("Traceback (most recent call last)") for line in lines)
    if nested and ": " in lines[-1]:
        return lines[-1][:_LONGEST]
    text = " ".join(lines)
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_LONGEST]


class Watch:
    """Says that capture is loaded and, when it ends, what became of it: as a rule when the process
    exits."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = os.getpid()
        leave(folder, "loaded")
        atexit.register(self._at_exit)

    def end(self, error: str) -> None:
        """`error`: of what it ended; "" if of nothing."""
        atexit.unregister(self._at_exit)
        if os.getpid() != self._process:
            return  # A child of fork has the parent's handlers.
        if error:
            leave(self._folder, "error", text=error)
        iterations = _ran.pop(self._folder, None)
        leave(
            self._folder,
            "ended",
            torch="torch" in sys.modules,
            framework="megatron.core" in sys.modules,
            **({} if iterations is None else {"iterations": iterations}),
        )

    def _at_exit(self) -> None:
        self.end(uncaught_exception())
