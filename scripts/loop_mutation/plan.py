"""Which loops there are, and the mutants that follow from a seed and a number."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "zoo"))

import mutation.loops.plant  # noqa: E402, F401  (fills FAULTS)
from mutation.loops.mutant import FAULTS, LoopMutant  # noqa: E402
from mutation.loops.options import LoopOptions  # noqa: E402

ITERATIONS = 3
SIZES = (0.01, 0.1, 0.5)


@dataclass(frozen=True)
class Kind:
    """One loop. Its reference has fewer ranks, but where batch statistics are those of a rank."""

    name: str
    options: LoopOptions
    reference: LoopOptions


def _kind(name: str, reference_ranks: int = 1, ranks: int = 2, **more: object) -> Kind:
    """Its name begins with its model's."""
    reference = LoopOptions(name.split()[0], **more, ranks=reference_ranks)  # type: ignore
    return Kind(name, replace(reference, ranks=ranks), reference)


KINDS = {
    kind.name: kind
    for kind in (
        _kind("language"),
        _kind("language accumulated", accumulate=2, clip=1.0, hook=True),
        _kind("language bf16", precision="bf16", accumulate=2, hook=True),
        _kind("language one rank", ranks=1, accumulate=4, clip=0.5, optimizer="adam"),
        _kind("language tensor", tensor=True),
        _kind("language sequence", tensor=True, sequence=True, clip=1.0),
        _kind("language tensor bf16", tensor=True, precision="bf16", accumulate=2),
        _kind("encoder", accumulate=2, optimizer="adam", hook=True),
        _kind("encoder bf16", precision="bf16", clip=0.5),
        _kind("images", 2, optimizer="sgd", hook=True),
        _kind("images accumulated", 2, optimizer="sgd", accumulate=2, clip=1.0),
        _kind("images bf16", 2, optimizer="adamw", precision="bf16"),
        _kind("perceptron", optimizer="sgd", accumulate=4, clip=0.2, hook=True),
        _kind("perceptron fp16", precision="fp16", accumulate=2, clip=0.2),
        _kind("perceptron one rank", ranks=1, precision="fp16", accumulate=2, optimizer="sgd"),
    )
}


@dataclass(frozen=True)
class Experiment:
    seed: int
    number: int
    kind: Kind
    mutant: LoopMutant | None  # None: an honest candidate

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.number}"


def experiment(seed: int, number: int) -> Experiment:
    """All mechanisms in turn, in an order that the seed shuffles, each in a loop that has a place
    for it."""
    names = sorted(FAULTS)
    random.Random(seed).shuffle(names)
    chance = random.Random(f"{seed}/{number}")
    name = names[number % len(names)]
    found = FAULTS[name]
    kind = chance.choice([kind for kind in KINDS.values() if found.possible(kind.options)])
    several = found.one and kind.options.ranks > 1 and not kind.options.tensor
    mutant = LoopMutant(
        name=name,
        since=chance.randint(found.first, 1),
        ranks=chance.choice(("one", "all")) if several else "all",
        size=chance.choice(SIZES),
        seed=chance.randrange(1 << 20),
    )
    return Experiment(seed, number, kind, mutant)


def honest(kind: Kind) -> Experiment:
    return Experiment(0, list(KINDS).index(kind.name), kind, None)
