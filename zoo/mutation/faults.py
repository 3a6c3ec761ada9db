"""What a drawn fault makes of a tensor, in one run of the schedule on one rank."""

from __future__ import annotations

import random

import torch

from mutation.census import Draw
from mutation.mutant import EXTENTS
from mutation.perturb import permuted, perturbed


def faulty(tensor: torch.Tensor, draw: Draw, run: int, rank: int) -> torch.Tensor:
    """A changed copy; the tensor itself where this rank or this run has no fault."""
    mutant = draw.mutant
    right = tensor.detach()
    # An expert may have no tokens.
    if not draw.holds or not right.numel():
        return right
    if mutant.mechanism == "piece":
        return permuted(right, draw.random())
    if mutant.mechanism in ("unsteady", "once"):
        if mutant.mechanism == "once" and run > 0:
            return right
        # A race is lost in another way each time, and on each rank.
        extent = draw.random().choice(EXTENTS)
        chance = random.Random(f"{mutant.seed} run {run} rank {rank}")
        size = mutant.size * chance.uniform(0.5, 2)
        return perturbed(right, "noise" if extent == "all" else extent, size, chance)
    return perturbed(right, mutant.mechanism, mutant.size, draw.random())
