"""What a mutant is, and the words in which one is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# Family -> mechanisms. Those of a tensor are what part of it is hit.
MECHANISMS = {
    "collective": ("drop", "double", "scale", "permute", "delay", "group"),
    "output": ("element", "row", "all"),
    "grad_input": ("element", "row", "all"),
    "weight": ("element", "row", "all"),
    "grad_local": ("element", "row", "all"),
    "grad_reduced": ("element", "row", "all"),
    "update": ("skip",),
}
# The name of a site's group if that has ranks of several pipeline stages.
ACROSS_STAGES = "across stages"


@dataclass(frozen=True)
class Mutant:
    """`size` is the wanted relative change: of a tensor, or of the factor of a scaled collective.
    `ranks` is "one" or "all", of those of the pipeline stage that `seed` draws."""

    iteration: int
    family: str
    mechanism: str
    ranks: str
    size: float
    seed: int

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS.get(self.family, ()):
            raise ValueError(f"no mutant is called {self.family} {self.mechanism}")
        if self.ranks not in ("one", "all"):
            raise ValueError(f"ranks are one or all, not {self.ranks!r}")
        if self.iteration < 1:
            raise ValueError("iteration 0 is clean: places are counted there")


def read_mutants(path: str) -> dict[int, Mutant]:
    """By iteration. Raises ValueError for what is no list of mutants."""
    mutants: dict[int, Mutant] = {}
    for fields in json.loads(Path(path).read_text()):
        mutant = Mutant(**fields)
        if mutant.iteration in mutants:
            raise ValueError(f"two mutants in iteration {mutant.iteration}")
        mutants[mutant.iteration] = mutant
    return mutants
