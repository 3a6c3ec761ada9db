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
_iterations: int | None = None  # of the loop that capture is attached to


def ran(iterations: int) -> None:
    """Capture is attached to a loop, which ran so many iterations, captured or not."""
    global _iterations
    _iterations = iterations


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
    error = getattr(sys, "last_value", None)  # Set by the interpreter when it prints a traceback.
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


def watch(folder: str) -> None:
    """Says that capture is loaded and, when the process exits, what became of it."""
    process = os.getpid()
    leave(folder, "loaded")

    def at_exit() -> None:
        if os.getpid() != process:
            return  # A child of fork has the parent's handlers.
        if error := uncaught_exception():
            leave(folder, "error", text=error)
        leave(
            folder,
            "ended",
            torch="torch" in sys.modules,
            framework="megatron.core" in sys.modules,
            **({} if _iterations is None else {"iterations": _iterations}),
        )

    atexit.register(at_exit)
