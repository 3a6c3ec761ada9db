"""What the optimizers of a loop have done in one iteration."""

from __future__ import annotations

from typing import Any


class StepsTaken:
    """Of one iteration, which is over when all optimizers have stepped."""

    def __init__(self) -> None:
        self.runs = False  # a step, with its gradients complete
        self.repeats = False  # the step that runs, without a forward of its own
        self.evaluates_again = False  # the step that runs, after its gradients were given out
        self._done: set[int] = set()
        self._noted: set[int] = set()  # optimizers whose hyperparameters were

    def approach(self, repeats: bool) -> None:
        """A step is about to begin, or to go on with the gradients of its closure."""
        self.repeats, self.evaluates_again = repeats, False

    def begin(self) -> None:
        self.runs = True

    def end(self, optimizer: Any) -> None:
        self.evaluates_again = False
        if self.repeats:
            self.repeats = False
        else:
            self.runs = False
            self._done.add(id(optimizer))

    def evaluate(self, again: bool) -> None:
        """A closure is called."""
        self.evaluates_again = again

    def has(self, optimizer: Any) -> bool:
        return id(optimizer) in self._done

    @property
    def count(self) -> int:
        return len(self._done)

    def note(self, optimizer: Any) -> bool:
        """Whether it is yet to be noted; from now on it is. A scaler's step may come before the
        optimizer's own."""
        if id(optimizer) in self._noted:
            return False
        self._noted.add(id(optimizer))
        return True
