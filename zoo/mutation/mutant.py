"""What a mutant is, and the words in which one is asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# What part of a tensor is hit.
EXTENTS = ("element", "row", "all")
# Faults of a tensor that runs record: multiplied by 1 + size; one rank's piece of it permuted; an
# error that is another one in each run of the schedule; one in the first run only.
TENSORS = ("gain", "piece", "unsteady", "once")
# Family -> mechanisms.
MECHANISMS = {
    "collective": ("drop", "double", "scale", "permute", "delay", "group"),
    "output": (*EXTENTS, *TENSORS),
    # Of a router: tokens go to the expert after the right one, or with another expert's weight.
    "route": ("neighbour", "weights"),
    "grad_input": (*EXTENTS, *TENSORS),
    "weight": EXTENTS,
    "grad_local": (*EXTENTS, *TENSORS),
    "grad_reduced": (*EXTENTS, *TENSORS),
    "update": ("skip",),
    # What the optimizer's step of one group of parameters computes with.
    "setting": ("lr", "weight_decay", "betas", "eps", "clip"),
    # Dropout: one mask for other data (of data-parallel ranks, of tensor-parallel parts, of layers,
    # of micro-batches), or several for copies of one value.
    "mask": ("data", "parts", "layers", "micro_batches", "copies"),
}
# The name of a site's group if that has ranks of several pipeline stages.
ACROSS_STAGES = "across stages"


@dataclass(frozen=True)
class Mutant:
    """`size` is the wanted relative change: of a tensor, of the factor of a scaled collective, or
    of a setting. `ranks` is "one" or "all", of those of the pipeline stage that `seed` draws."""

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
        if self.mechanism == "piece" and self.ranks != "one":
            raise ValueError("a piece is one rank's")
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
