"""What a mutant of a plain loop is, what kinds there are, and what should be said of each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mutation.loops.options import LoopOptions

if TYPE_CHECKING:
    from mutation.loops.loop import PlainLoop


@dataclass(frozen=True)
class LoopMutant:
    """`since` is the first iteration with the fault. `ranks` is "one" or "all"; `size` a wanted
    relative change, where the mechanism has a size."""

    name: str  # of FAULTS: "family mechanism"
    since: int
    ranks: str
    size: float
    seed: int

    def __post_init__(self) -> None:
        if self.ranks not in ("one", "all"):
            raise ValueError(f"ranks are one or all, not {self.ranks!r}")
        if self.since < 0:
            raise ValueError("iterations are counted from 0")


@dataclass(frozen=True)
class Draw:
    """A mutant in one rank's loop."""

    mutant: LoopMutant
    loop: PlainLoop
    rng: random.Random  # the same on all ranks

    @property
    def active(self) -> bool:
        return self.loop.iteration >= self.mutant.since

    @property
    def holds(self) -> bool:
        """Whether this rank is at fault; of one, it is the last."""
        return self.mutant.ranks == "all" or self.loop.rank == self.loop.ranks - 1

    @property
    def here(self) -> bool:
        return self.active and self.holds


# Returns the names of the modules and parameters of which one is to be blamed, as patterns of
# fnmatch; "" is the model itself.
Plant = Callable[["PlainLoop", Draw], Sequence[str]]


@dataclass(frozen=True)
class Fault:
    """`roles` are those of the record that shows it first, `letters` the classes that are right.
    `one`: one rank may be at fault alone. `first`: no earlier iteration can have it.
    `before`: so many iterations earlier than the fault is what it spoils."""

    name: str
    plant: Plant
    possible: Callable[[LoopOptions], bool]
    roles: tuple[str, ...]
    letters: str
    one: bool = False
    first: int = 0
    before: int = 0


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    possible: Callable[[LoopOptions], bool],
    roles: tuple[str, ...],
    letters: str,
    **more: object,
) -> Callable[[Plant], Plant]:
    """Adds what plants it to FAULTS."""

    def add(plant: Plant) -> Plant:
        if name in FAULTS:
            raise ValueError(f"two faults are called {name}")
        FAULTS[name] = Fault(name, plant, possible, roles, letters, **more)  # type: ignore[arg-type]
        return plant

    return add


def read_mutant(path: str) -> LoopMutant:
    """Raises ValueError for what is no mutant."""
    mutant = LoopMutant(**json.loads(Path(path).read_text()))
    if mutant.name not in FAULTS:
        raise ValueError(f"no mutant of a plain loop is called {mutant.name}")
    return mutant
