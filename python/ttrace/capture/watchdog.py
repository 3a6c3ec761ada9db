"""Ends a run whose ranks would wait for each other forever because a rerun failed on one of them.

A collective that some ranks entered and another never will cannot be left: only the process can
end. By then the real call is in the trace. A failure that all ranks share ends the legs
and nothing else.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any

import torch.distributed as dist

_POLL_SECONDS = 0.5
# How long a rank may take to fail by itself, or to finish, after another one failed.
_GRACE_SECONDS = 30.0


class Watchdog:
    """Watches one leg. Use as a context manager around the rerun; `failed` tells the others."""

    def __init__(self, key: str, rank: int) -> None:
        self._key = f"ttrace/{key}/failed"
        self._rank = rank
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._store: Any = None

    def __enter__(self) -> Watchdog:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._store = dist.distributed_c10d._get_default_store()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def failed(self, reason: str) -> None:
        if self._store is not None:
            self._store.set(self._key, reason)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            try:
                if not self._store.check([self._key]):
                    continue
                reason = self._store.get(self._key).decode()
            except Exception:
                return  # The store is gone: so is the job.
            if self._done.wait(_GRACE_SECONDS):
                return
            sys.stderr.write(
                f"ttrace: rank {self._rank}: a rerun failed on another rank ({reason}) and this"
                " one waits for it in a collective; the run ends here, the iteration's own"
                " call is in the trace\n"
            )
            sys.stderr.flush()
            os._exit(70)
