"""Calls of one of several models that a loop calls apart from each other, in one iteration.

Each has a batch of its own: how often the others are called meanwhile says nothing of its rows. A
part of an iteration ends where an optimizer steps. What a model is called for in another part is
another tensor of its modules (their next calls), and is complete by itself: a generator has
gradients where it is trained, and none where its pictures are judged.
"""

from __future__ import annotations

from typing import NamedTuple

Calls = dict[tuple[str, str], int]  # of modules, see Moment


class Begun(NamedTuple):
    part: int  # its order among those in which the model is called
    count: int  # of micro-batches in it, with this one
    call: int  # of the model, in a micro-batch of all parts together


class CallsOfRoot:
    def __init__(self) -> None:
        self.part = -1  # that it was called in last
        self.gap = -1  # the number of the last gradient or item of data before its last call
        self.forwards = 0  # in the micro-batch that runs
        self.calls: Calls = {}
        self._before = 0  # forwards of one micro-batch in each of the parts before, added up
        self._parts: list[int] = []  # of each: its micro-batches
        self._calls_before: Calls = {}

    def begin(self, part: int, gap: int) -> Begun:
        """A forward."""
        if part != self.part:
            self._before += self.forwards
            self._calls_before = self.calls
            self._parts.append(0)
        if part != self.part or gap != self.gap:
            self._parts[-1] += 1
            self.forwards, self.calls = 0, dict(self._calls_before)
        self.part, self.gap = part, gap
        self.forwards += 1
        call = self._before + self.forwards - 1
        return Begun(len(self._parts) - 1, self._parts[-1], call)

    def count(self, part: int) -> int:
        """Micro-batches in one of its parts, by their order."""
        return self._parts[part] if part < len(self._parts) else 0
