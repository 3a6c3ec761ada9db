"""The trace of one rank while it is written, from any thread."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from ttrace import _native
from ttrace.capture.forks import abandon_in_child


class TraceWriter:
    """Not open, open, closed: never goes back. What is written while it is not open is dropped."""

    def __init__(self) -> None:
        self._native: Any = None
        self._lock = threading.RLock()
        self._process = os.getpid()
        # A child of fork has the parent's files open and must not touch them.
        abandon_in_child(self)

    def open(self, *arguments: Any, **options: Any) -> Any:
        """As the native Writer. Gives it to those who make its specs and read devices for it."""
        self._native = _native.Writer(*arguments, **options)
        return self._native

    @property
    def is_open(self) -> bool:
        return self._native is not None

    @property
    def is_of_this_process(self) -> bool:
        return os.getpid() == self._process

    def append(self, *record: Any) -> bool:
        """False: the stream that computes it is captured into a graph."""
        with self._lock:
            return self._native is None or self._native.append(*record)

    def hold(self) -> None:
        """Sets aside what is appended from now on, until `release` or `drop`."""
        with self._lock:
            if self._native is not None:
                self._native.hold()

    def amend(self, *record: Any) -> None:
        """What is set aside of this occurrence is of another spec."""
        with self._lock:
            if self._native is not None:
                self._native.amend(*record)

    def release(self, micro_batches: list[int]) -> None:
        """Writes what was set aside. `micro_batches`: in each of the iteration's batches, those of
        all ranks."""
        with self._lock:
            if self._native is not None:
                self._native.release(micro_batches)

    def drop(self) -> None:
        with self._lock:
            if self._native is not None:
                self._native.drop()

    def perturb(self, *arguments: Any) -> bool:
        """Noise, with the help of the thread that writes. False: it is not open."""
        with self._lock:
            if self._native is None:
                return False
            self._native.perturb(*arguments)
            return True

    def note(self, kind: str, values: dict[str, Any]) -> None:
        with self._lock:
            if self._native is not None:
                self._native.note(kind, json.dumps(values))

    def seal(self, iteration: int, leg: str) -> None:
        with self._lock:
            if self._native is not None:
                self._native.seal(iteration, leg)

    def flush(self) -> None:
        with self._lock:
            if self._native is not None:
                self._native.flush()

    def scales_message(self) -> bytes:
        with self._lock:
            return self._native.scales_message()

    def learn_scales(self, answer: bytes) -> None:
        with self._lock:
            self._native.learn_scales(answer)

    def close(self, complete: bool, reason: str) -> None:
        with self._lock:
            native, self._native = self._native, None
            if native is not None:
                native.close(complete, reason)

    def try_lock(self, seconds: float) -> bool:
        """For who ends the process: a thread that writes may be stuck."""
        return self._lock.acquire(timeout=seconds)

    def unlock(self) -> None:
        self._lock.release()

    def abandon(self) -> None:
        """In a child of fork."""
        self._leaked = self._native  # Kept: closing it would write to the parent's files.
        self._native = None
