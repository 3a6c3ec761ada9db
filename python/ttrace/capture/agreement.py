"""Decisions that all ranks must share, made through the store at which the ranks first met.

No collectives: one of ours could pair with one of the user's, and a rank that failed would never
enter it. Here a rank that says no decides at once and waits for nobody, a rank that says nothing is
given up after a time, and whoever comes late reads what was decided.
"""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist

from ttrace.capture.session import Session
from ttrace.capture.settings import Settings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds between two looks at the store
_YES, _NO, _SILENT = "yes", "no ", "silent "  # and then the reason
_NAMED = 8  # at most so many silent ranks are named
_PART_BYTES = 1 << 20  # of a value: a store may end the connection over one of more than 8 MiB


def store_of_all_ranks() -> Any:
    """Another connection to it, where that is possible: a thread that waits on the user's own keeps
    everyone else off it."""
    store = dist.distributed_c10d._get_default_store()
    try:
        return store.clone()
    except Exception:
        return store


class Board:
    """Facts about parts of the job that other parts need, each pinned up by whoever knows it."""

    def __init__(self, settings: Settings) -> None:
        self._store = store_of_all_ranks()
        self._key = f"ttrace/{settings.run}/{settings.leg}/board"

    def pin(self, name: str, text: str) -> None:
        self._store.set(f"{self._key}/{name}", text)

    def read(self, name: str, seconds: float) -> str | None:
        """None if nobody pins it up in time."""
        key = f"{self._key}/{name}"
        return self._store.get(key).decode() if _appears(self._store, key, seconds) else None


def _appears(store: Any, key: str, seconds: float) -> bool:
    """Looks again and again. To wait in the store would lock it for the other threads."""
    pause, deadline = _FIRST_PAUSE, time.monotonic() + seconds
    while not store.check([key]):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


class Agreement:
    """The votes of one captured iteration, each about a question that has a name."""

    def __init__(self, store: Any, key: str, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._store = store
        self._key = key
        self.silent = False  # whether a rank was given up, which all ranks know
        self._asked: list[str] = []

    @staticmethod
    def about(session: Session) -> Agreement:
        """On the current iteration. To be made once in it by every rank, whatever happened to its
        capture."""
        return Agreement.of_ranks(session.settings, f"{session.iteration}.{session.visit()}")

    @staticmethod
    def of_ranks(settings: Settings, name: str) -> Agreement:
        """Of something that every rank calls by this name, once a run."""
        key = f"ttrace/{settings.run}/{settings.leg}/{name}"
        if not (dist.is_available() and dist.is_initialized()):
            return Agreement(None, key, 0, 1)
        return Agreement(store_of_all_ranks(), key, dist.get_rank(), dist.get_world_size())

    def refuse(self, question: str, reason: str) -> None:
        """Says no and does not wait."""
        if self.ranks > 1:
            self._decide(self._named(question), f"{_NO}rank {self.rank}: {reason}")

    def vote(self, question: str, refusal: str | None, seconds: float) -> str | None:
        """None if every rank agrees, or why not: the same answer on all ranks. `refusal` is this
        rank's own reason against it. Ranks that are silent for `seconds` do not agree."""
        if self.ranks == 1:
            return refusal
        store, key = self._store, self._named(question)
        if refusal is not None:
            return self._decide(key, f"{_NO}rank {self.rank}: {refusal}")
        store.set(f"{key}/{self.rank}", _YES)
        complete = store.add(f"{key}/count", 1) == self.ranks
        if complete:
            answer = self._decide(key, _YES)
        else:
            answer = self._wait(key, seconds)
        self._forget_what_all_have_read(question, complete)
        return answer

    def differing(self, name: str, mine: str) -> str | None:
        """What another rank has as `name`, if it is not `mine`."""
        if self.ranks == 1:
            return None
        first = self._store.compare_set(self._named(name), "", mine).decode()
        return None if first == mine else first

    def tell(self, name: str, text: str) -> str:
        """Leaves a word for the other ranks. The first one stays, and is returned."""
        if self.ranks == 1:
            return text
        return self._store.compare_set(self._named(name), "", text).decode()

    def told(self, name: str) -> str | None:
        """The word that some rank left."""
        key = self._named(name)
        if self.ranks == 1 or not self._store.check([key]):
            return None
        return self._store.get(key).decode()

    def post(self, name: str, content: bytes) -> None:
        """Leaves bytes that any rank finds after the next vote. Of one rank for each name."""
        key = self._named(name)
        parts = range(0, len(content), _PART_BYTES)
        for begin in parts:
            self._store.set(f"{key}/{begin}", content[begin : begin + _PART_BYTES])
        self._store.set(key, str(len(content)))

    def posted(self, name: str) -> bytes | None:
        """What was posted, or None: nothing was. Waits for nobody."""
        found = self._posted_keys(name)
        return None if found is None else b"".join(self._store.get(key) for key in found)

    def withdraw(self, name: str) -> None:
        """Removes what was posted, if anything was."""
        for key in [self._named(name), *(self._posted_keys(name) or ())]:
            self._store.delete_key(key)

    def _posted_keys(self, name: str) -> list[str] | None:
        key = self._named(name)
        if not self._store.check([key]):
            return None
        size = int(self._store.get(key))
        return [f"{key}/{begin}" for begin in range(0, size, _PART_BYTES)]

    def gather(self, name: str, seconds: float) -> None:
        """Waits a little until all ranks have come here."""
        if self.ranks == 1:
            return
        key, deadline = self._named(name), time.monotonic() + seconds
        self._store.add(key, 1)
        while self._store.add(key, 0) < self.ranks and time.monotonic() < deadline:
            time.sleep(_LONGEST_PAUSE)

    def _named(self, name: str) -> str:
        return f"{self._key}/{name}"

    def _decide(self, key: str, answer: str) -> str | None:
        """The first answer counts, for all."""
        return self._reason(self._store.compare_set(key, "", answer).decode())

    def _reason(self, answer: str) -> str | None:
        if answer == _YES:
            return None
        self.silent = self.silent or answer.startswith(_SILENT)
        return answer.removeprefix(_NO).removeprefix(_SILENT)

    def _wait(self, key: str, seconds: float) -> str | None:
        if not _appears(self._store, key, seconds):
            who = self._who_is_silent(key)
            return self._decide(key, f"{_SILENT}{who} did not answer in {seconds:.0f} s")
        return self._reason(self._store.get(key).decode())

    def _who_is_silent(self, key: str) -> str:
        silent = []
        for rank in range(self.ranks):
            if not self._store.check([f"{key}/{rank}"]):
                silent.append(str(rank))
            if len(silent) == _NAMED:
                break
        return f"rank {', '.join(silent)}" if silent else "a rank"

    def _forget_what_all_have_read(self, question: str, complete: bool) -> None:
        """Whoever votes has read the answers to all questions before."""
        if self._asked:
            before = self._named(self._asked[-1])
            self._store.delete_key(f"{before}/{self.rank}")
            if complete:
                self._store.delete_key(f"{before}/count")
                self._store.delete_key(before)
        self._asked.append(question)
