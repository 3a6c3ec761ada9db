"""What is captured by one order: of the launcher for a process, or of a caller for a part of it.

A scope holds what its captures share: the settings, and what was changed in frameworks so that
their loops are found. Closed, it has left nothing behind. Scopes may follow each other, lie within
each other and in threads beside each other; inside of one, loops belong to the innermost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

from ttrace.capture import process_messages
from ttrace.capture.patches import Patches
from ttrace.capture.settings import Settings

OnImport = Callable[[str, Callable[[ModuleType], None]], None]


class Scope:
    """Open until `close`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.patches = Patches()  # of frameworks
        self.is_closed = False
        self.has_loop = False  # whether a loop was attached in it, whatever became of it
        self._watch: process_messages.Watch | None = None
        self._when_closed: list[Callable[[str], None]] = []

    def watch(self) -> None:
        """From now on says in the trace's folder what becomes of the process, or of the scope."""
        self._watch = process_messages.Watch(self.settings.out)

    def when_closed(self, end: Callable[[str], None]) -> None:
        """`end(reason)` is called then: why a capture ends that was not complete."""
        self._when_closed.append(end)

    def forget(self, end: Callable[[str], None]) -> None:
        """It has ended by itself."""
        if end in self._when_closed:
            self._when_closed.remove(end)

    def close(self, error: BaseException | None = None) -> None:
        """`error`: with which the code inside ended. Any number of times."""
        if self.is_closed:
            return
        self.is_closed = True
        words = process_messages.words_of(error)
        last = self.settings.iterations[-1]
        reason = f"the run ended before iteration {last} was complete"
        while self._when_closed:
            try:
                self._when_closed.pop()(f"{reason}: {words}" if words else reason)
            except Exception as trouble:
                sys.stderr.write(f"ttrace: something of capture stays: {trouble}\n")
        self.patches.undo_everywhere()
        if self._watch is not None:
            self._watch.end(words)


_inside: ContextVar[Scope | None] = ContextVar("ttrace_scope", default=None)
_of_process: list[Scope] = []  # at most one: what the launcher has asked for


def current() -> Scope | None:
    """That of the code that runs now. Threads that it starts are not inside; the launcher's is of
    all threads."""
    inside = _inside.get()
    return inside if inside is not None else next(iter(_of_process), None)


def for_process(scope: Scope) -> None:
    """Makes it that of the process, for as long as that lasts."""
    _of_process[:] = [scope]


@contextmanager
def inside(scope: Scope) -> Iterator[Scope]:
    """Loops that are attached in here belong to it. It is closed at the end."""
    token = _inside.set(scope)
    error: BaseException | None = None
    try:
        yield scope
    except BaseException as raised:
        error = raised
        raise
    finally:
        _inside.reset(token)
        scope.close(error)
