"""One iteration of the run, and where in it the process is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ttrace.capture.placed import Moment, Position


class Iteration:
    """Made when it begins and dropped for the next one: nothing of it has to be reset, and nothing
    of it reaches the next. What only one framework knows of an iteration is in a subclass."""

    def __init__(self, number: int, leg: str) -> None:
        self.number = number
        self.leg = leg
        self.moment: Moment | None = None  # None: outside the model's forward
        self.pass_ = "forward"
        # The micro-batch whose backward runs now: parameter gradients have no other way to know.
        self.backward_moment: Moment | None = None
        self.input_bytes = 0  # of its own leg: what an isolated leg will hold copies of
        self._is_second = False  # a recomputation within a recomputation runs

    def following(self) -> Iteration:
        """The one after it."""
        return Iteration(self.number + 1, self.leg)

    def begin_forward(self, moment: Moment) -> None:
        self.moment, self.pass_ = moment, "forward"

    def end_forward(self) -> None:
        self.moment = None

    def begin_backward(self, moment: Moment | None) -> None:
        """None: of no forward that was seen."""
        self.backward_moment = moment

    def count_input(self, size: int) -> None:
        self.input_bytes += size

    @contextmanager
    def rerun(self, leg: str) -> Iterator[None]:
        """Inside, it runs again as this leg."""
        own, self.leg = self.leg, leg
        try:
            yield
        finally:
            self.leg = own
            self.moment = self.backward_moment = None

    # Recomputed forwards

    @property
    def recomputes_again(self) -> bool:
        """Whether what runs was recomputed before, with the same values."""
        return self._is_second

    def position(self) -> Position | None:
        """Of the forward that runs now; for recomputing()."""
        return None if self.moment is None else self.moment.position(self.pass_)

    @contextmanager
    def recomputing(self, position: Position | None) -> Iterator[None]:
        """The forward since `position` runs again. Within a checkpoint within a checkpoint it does
        so twice, with the same values: only the first is recorded, of both the gradients."""
        if position is None:
            with self._inside(None):
                yield
            return
        calls, before, is_second = position.moment.calls, {}, self._is_second
        for fqn in [fqn for fqn, pass_ in calls if pass_ == "forward"]:
            before[fqn, "recompute"] = calls.get((fqn, "recompute"), 0)
            calls[fqn, "recompute"] = position.calls.get(fqn, 0)
        self._is_second = position.again
        try:
            with self._inside(position.moment):
                yield
        finally:
            self._is_second = is_second
            calls.update(before)

    @contextmanager
    def _inside(self, moment: Moment | None) -> Iterator[None]:
        before = self.moment, self.pass_
        self.moment, self.pass_ = moment, "recompute"
        try:
            yield
        finally:
            self.moment, self.pass_ = before
