"""What a launch is: a model, a topology and a list of mutants, all drawn from a seed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "zoo"))
from mutation.mutant import MECHANISMS, Mutant  # noqa: E402

# Processes, flags. What remains of the processes is dp.
TOPOLOGIES = {
    "single": (1, ()),
    "tp2": (2, ("--tp", "2")),
    "tp2sp": (2, ("--tp", "2", "--sp")),
    "cp2": (2, ("--cp", "2")),
    "pp2": (2, ("--pp", "2")),
    "dp2": (2, ()),
    "tp2sp_cp2": (4, ("--tp", "2", "--sp", "--cp", "2")),
    "tp2sp_pp2": (4, ("--tp", "2", "--sp", "--pp", "2")),
    "tp2_dp2": (4, ("--tp", "2")),
    "tp2sp_dp2": (4, ("--tp", "2", "--sp")),
    "cp2_dp2": (4, ("--cp", "2")),
    "pp2_dp2": (4, ("--pp", "2")),
}
# Four processes on two cores take twice as long as two, and one has no collectives.
_WEIGHTS = (1, 4, 6, 4, 4, 4, 2, 2, 2, 2, 2, 2)
_FAMILIES = {
    "collective": 8,
    "output": 2,
    "grad_input": 2,
    "weight": 1,
    "grad_local": 1,
    "grad_reduced": 1,
    "update": 1,
}
# References are shared by so many candidates of other topologies.
CANDIDATES_OF_ONE_REFERENCE = 2


@dataclass(frozen=True)
class Launch:
    number: int
    topology: str
    processes: int
    flags: tuple[str, ...]  # of the topology
    model: tuple[str, ...]  # of both runs
    recompute: bool
    bf16: bool
    mutants: tuple[Mutant, ...]

    @property
    def reference(self) -> int:
        return self.number // CANDIDATES_OF_ONE_REFERENCE


def plan(seed: int, number: int, iterations: int) -> Launch:
    """Always the same for the same arguments. Mutants are in the odd iterations, the others are
    clean: each has weights and data of its own."""
    shared = random.Random(f"{seed} model {number // CANDIDATES_OF_ONE_REFERENCE}")
    model, bf16 = _model(shared)
    own = random.Random(f"{seed} launch {number}")
    topology = own.choices(list(TOPOLOGIES), _WEIGHTS)[0]
    processes, flags = TOPOLOGIES[topology]
    mutants = tuple(_mutant(own, i, processes) for i in range(1, iterations, 2))
    recompute = own.random() < 0.25
    return Launch(number, topology, processes, flags, model, recompute, bf16, mutants)


def _model(rng: random.Random) -> tuple[tuple[str, ...], bool]:
    hidden = rng.choice((32, 64))
    micro_batch = rng.choice((1, 2))
    bf16 = rng.random() < 0.5
    words = {
        "layers": rng.choice((2, 4)),
        "hidden": hidden,
        "ffn": 2 * hidden,
        "heads": 4,
        "kv-groups": rng.choice((2, 4)),
        "seq": rng.choice((16, 32)),
        "vocab": rng.choice((64, 128)),
        "micro-batch": micro_batch,
        # Two micro-batches of each of two data-parallel ranks.
        "global-batch": 4 * micro_batch,
        "seed": rng.randrange(1, 10000),
    }
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    flags.append(rng.choice(("--gated", "--no-gated")))
    flags.append(rng.choice(("--tied", "--no-tied")))
    if bf16:
        flags.append("--bf16")
    return tuple(flags), bf16


def _mutant(rng: random.Random, iteration: int, processes: int) -> Mutant:
    families = dict(_FAMILIES)
    if processes == 1:
        del families["collective"]
    family = rng.choices(list(families), list(families.values()))[0]
    return Mutant(
        iteration,
        family,
        rng.choice(MECHANISMS[family]),
        rng.choice(("one", "all")),
        10 ** rng.uniform(-7, 1),
        rng.randrange(1 << 30),
    )
