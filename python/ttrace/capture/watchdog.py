"""Ends a run that could not go on as if nothing had happened, on all ranks and with one reason.

A collective that some ranks entered and another never will cannot be left, and a process whose
gradients could not be put back must not step: only the process can end. Before that, the trace is
closed and every rank says why. Watches from the first vote of an iteration to the last restore.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from ttrace.capture import process_messages
from ttrace.capture.agreement import Agreement
from ttrace.capture.session import Session

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
_POLL_SECONDS = 0.25
_LAST_WORDS_SECONDS = 5.0  # for closing the trace, and for the other ranks to do so too


class Watchdog:
    """Use as a context manager. What this rank does is outside of `waiting` busy: it may be stuck
    in a collective, or just be slow."""

    def __init__(
        self, agreement: Agreement, session: Session, grace_seconds: float, limit_seconds: float
    ) -> None:
        """A rank may be busy for `grace_seconds` after another one failed, and at one thing for
        `limit_seconds` at most."""
        self._agreement = agreement
        self._session = session
        self._grace = grace_seconds
        self._limit = limit_seconds
        self._doing = ""
        self._busy_since: float | None = None
        self._failed_since: float | None = None
        self._done = threading.Event()
        self._leaving = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        if self._agreement.ranks > 1:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def begins(self, doing: str) -> None:
        """The next thing that this rank is busy with."""
        self._doing = doing
        self._busy_since = time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, this rank waits where it can be reached."""
        self._busy_since = None
        try:
            yield
        finally:
            self._busy_since = time.monotonic()

    def failed(self, reason: str) -> None:
        """Others may now wait for this rank in a collective that it has left."""
        try:
            self._agreement.tell(
                "failed", f"{self._doing} failed on rank {self._agreement.rank}: {reason}"
            )
        except Exception:
            pass  # Without a store there is nobody to tell.

    def end(self, reason: str) -> None:
        """Ends the run, with the first reason that any rank gave. Does not return."""
        try:
            reason = self._agreement.tell("end", reason)
        except Exception:
            pass
        self._leave(reason)

    def _watch(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            try:
                end, failure = self._agreement.told("end"), self._agreement.told("failed")
            except Exception:
                end = failure = None  # Whoever kept the store is gone. The limit still holds.
            if self._done.is_set():
                return
            if end is not None:
                self._leave(end)
            why = self._stuck(failure)
            if why is not None:
                self.end(why)

    def _stuck(self, failure: str | None) -> str | None:
        now, since, rank = time.monotonic(), self._busy_since, self._agreement.rank
        if since is None:
            return None
        if failure is not None:
            if self._failed_since is None:
                self._failed_since = now
            if since < self._failed_since and now - self._failed_since > self._grace:
                return (
                    f"{failure}. Rank {rank} waits for it, most likely in a collective, which a"
                    " process cannot leave"
                )
        elif now - since > self._limit:
            return f"{self._doing} is not over after {self._limit:.0f} s on rank {rank}"
        return None

    def _leave(self, reason: str) -> None:
        with self._leaving:
            _briefly(lambda: self._session.end(reason))
            # The exit below is no exception: nobody else would tell the launcher of it.
            out = self._session.settings.out
            _briefly(lambda: process_messages.leave(out, "error", text=reason))
            line = (
                f"ttrace: rank {self._agreement.rank}: the run ends here, exit code {EXIT_CODE}:"
                f" {reason}. This rank is in {_place()}. {self._session.kept()} To do without"
                " reruns: `ttrace record --legs real`.\n"
            )
            _briefly(lambda: (sys.stdout.flush(), os.write(2, line.encode())))
            # A launcher kills everyone else as soon as one process ends.
            _briefly(lambda: self._agreement.gather("leaving", _LAST_WORDS_SECONDS - 1))
            os._exit(EXIT_CODE)


def _place() -> str:
    """Where the main thread is, of what is not this tool's."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    inside = os.path.dirname(os.path.dirname(__file__)) + os.sep
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    if frame is None:
        return "no Python code"
    code = frame.f_code
    return f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"


def _briefly(action: Callable[[], object]) -> None:
    """A disk or a lock that does not answer must not keep the process from ending."""

    def run() -> None:
        try:
            action()
        except Exception:
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_LAST_WORDS_SECONDS)
