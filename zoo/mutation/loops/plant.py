"""Puts the mutant of a file into a loop and writes down where."""

from __future__ import annotations

import json
import random
from pathlib import Path

# Each adds its faults to FAULTS.
from mutation.loops import (  # noqa: F401
    accumulation,
    clipping,
    data_parallel,
    loss_faults,
    modules,
    optimizers,
    precision,
    tensor_parallel,
)
from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import FAULTS, Draw, LoopMutant, read_mutant


def plant_mutant(loop: PlainLoop, mutant: LoopMutant) -> list[str]:
    """Returns the names of which one is to be blamed. Raises ValueError where the loop has no place
    for it."""
    found = FAULTS[mutant.name]
    if not found.possible(loop.options):
        raise ValueError(f"{mutant.name} has no place in this loop")
    return list(found.plant(loop, Draw(mutant, loop, random.Random(mutant.seed))))


def plant_file(loop: PlainLoop, path: str) -> None:
    """Raises ValueError for a file that is no mutant, or none of this loop."""
    mutant = read_mutant(path)
    blamed = plant_mutant(loop, mutant)
    if loop.rank == 0:
        Path(f"{path}.place").write_text(json.dumps(blamed))
