"""What a launch is: a model, a topology and a list of mutants, all drawn from a seed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "zoo"))
from mutation.mutant import EXTENTS, MECHANISMS, Mutant  # noqa: E402

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
# Four processes on two cores take far longer than two, and one has no collectives.
_WEIGHTS = (1, 4, 6, 4, 4, 4, 1, 1, 1, 1, 1, 1)
# Launches of earlier seeds follow from what is above, and are in docs/evidence/sweep.md.
FIRST_SEED_OF_FURTHER_AXES = 6
_SHARDED = "--distributed-optimizer"
_OVERLAP = ("--overlap-grad-reduce",)
# Of dense models with as many layers as virtual stages, and whose bigger batch all of these divide.
DENSE = {
    "vpp2": (2, ("--pp", "2", "--vpp", "2")),
    "dp2_sharded": (2, (_SHARDED,)),
    "dp2_sharded_overlap": (2, (_SHARDED, *_OVERLAP)),
    "dp2_sharded_overlaps": (2, (_SHARDED, *_OVERLAP, "--overlap-param-gather")),
    "tp2sp_dp2_sharded": (4, ("--tp", "2", "--sp", _SHARDED)),
    "vpp2_dp2_sharded": (4, ("--pp", "2", "--vpp", "2", _SHARDED)),
}
_DENSE_WEIGHTS = (6, 4, 3, 4, 1, 1)
# Of models with experts. Not among them: tensor parallelism with experts that are on every rank
# whole (--tp 2 --ep 1 --etp 1), of which megatron-core 0.16.1 reduces the gradients wrongly. Nor is
# a router's z-loss, whose gradient it scales wrongly with tp or cp.
EXPERTS = {
    "ep2": (2, ("--ep", "2")),
    "tp2sp_etp2": (2, ("--tp", "2", "--sp", "--etp", "2")),
    "tp2sp_ep2": (2, ("--tp", "2", "--sp", "--ep", "2", "--etp", "1")),
    "pp2_ep2": (4, ("--pp", "2", "--ep", "2")),
    "ep2_dp2_sharded": (4, ("--ep", "2", _SHARDED)),
    "tp2sp_ep2_dp2": (4, ("--tp", "2", "--sp", "--ep", "2", "--etp", "1")),
}
_EXPERT_WEIGHTS = (6, 4, 5, 1, 2, 1)
_FAMILIES = {
    "collective": 7,
    "output": 4,
    "grad_input": 4,
    "weight": 1,
    "grad_local": 2,
    "grad_reduced": 2,
    "update": 1,
    "setting": 2,
    "mask": 8,  # where there are any
}
_FAMILIES_WITH_EXPERTS = {**_FAMILIES, "route": 2}
# Of a tensor's fault: as many of what part of it is hit as of all others.
_TENSOR_WEIGHTS = {**dict.fromkeys(EXTENTS, 4), "gain": 4, "piece": 6, "unsteady": 2, "once": 2}
# Exponents of 10. Settings are compared as numbers: nothing is too small.
_SIZES = {"gain": (-3.0, -2.0), "setting": (-10.0, 1.0)}
_ANY_SIZE = (-7.0, 1.0)
# Every so many models, dropout in the second of them.
_MODELS_WITH_DROPOUT = 3
# References are shared by so many candidates of other topologies.
CANDIDATES_OF_ONE_REFERENCE = 4


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
    def dropout(self) -> bool:
        return "--dropout" in self.model

    @property
    def reference(self) -> int:
        return self.number // CANDIDATES_OF_ONE_REFERENCE


def plan(seed: int, number: int, iterations: int, clean: int = 2) -> Launch:
    """Always the same for the same arguments. Every `clean`-th iteration is clean, the first too:
    each has weights and data of its own."""
    which = number // CANDIDATES_OF_ONE_REFERENCE
    bf16 = (seed + which) % 2 == 0
    model = _model(random.Random(f"{seed} model {which}"), bf16)
    table, all_weights, families = TOPOLOGIES, _WEIGHTS, _FAMILIES
    if seed >= FIRST_SEED_OF_FURTHER_AXES:
        # Two of each: an even and an odd one, so that both are in both precisions.
        experts = which // 2 % 2 == 1
        table, all_weights = (EXPERTS, _EXPERT_WEIGHTS) if experts else (DENSE, _DENSE_WEIGHTS)
        families = _FAMILIES_WITH_EXPERTS if experts else _FAMILIES
        model = _further(random.Random(f"{seed} further {which}"), model, experts)
    if which % _MODELS_WITH_DROPOUT == 1:
        model += ("--dropout", "0.1")
    own = random.Random(f"{seed} launch {number}")
    dropout = "--dropout" in model
    # The zoo's attention under context parallelism has none.
    weights = [
        0 if dropout and "--cp" in flags else weight
        for weight, (_, flags) in zip(all_weights, table.values(), strict=True)
    ]
    topology = own.choices(list(table), weights)[0]
    processes, flags = table[topology]
    stages = 2 if "--pp" in flags else 1
    ranks = processes // stages
    mutants = tuple(
        _mutant(own, i, processes, ranks, dropout, families) for i in range(iterations) if i % clean
    )
    recompute = own.random() < 0.25
    return Launch(number, topology, processes, flags, model, recompute, bf16, mutants)


def _model(rng: random.Random, bf16: bool) -> tuple[str, ...]:
    hidden = rng.choice((32, 64))
    micro_batch = rng.choice((1, 2))
    words = {
        "layers": 2,
        "hidden": hidden,
        "ffn": 2 * hidden,
        "heads": 4,
        "kv-groups": rng.choice((2, 4)),
        "seq": rng.choice((16, 32)),
        "vocab": rng.choice((64, 128)),
        "micro-batch": micro_batch,
        # One or two micro-batches of each of two data-parallel ranks.
        "global-batch": rng.choice((2, 2, 4)) * micro_batch,
        "seed": rng.randrange(1, 10000),
    }
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    flags.append(rng.choice(("--gated", "--no-gated")))
    flags.append(rng.choice(("--tied", "--no-tied")))
    if bf16:
        flags.append("--bf16")
    # Makes some pieces of the sequence small in backward.
    flags += ["--loss-mask", rng.choice(("full", "full", "uneven"))]
    return tuple(flags)


def _further(rng: random.Random, model: tuple[str, ...], experts: bool) -> tuple[str, ...]:
    """The model with experts, or with a layer for each of four virtual stages, and with rows for
    each micro-batch of the topologies. Later words count."""
    micro_batch = int(model[model.index("--micro-batch") + 1])
    model += ("--global-batch", str(4 * micro_batch))
    if not experts:
        return (*model, "--layers", "4")
    return (*model, "--experts", "4", "--dispatcher", rng.choice(("alltoall", "allgather")))


def _mutant(
    rng: random.Random,
    iteration: int,
    processes: int,
    ranks: int,
    dropout: bool,
    drawn_from: dict[str, int],
) -> Mutant:
    """`ranks`: of a pipeline stage."""
    families = dict(drawn_from)
    if processes == 1:
        del families["collective"]
    if not dropout:
        del families["mask"]
    family = rng.choices(list(families), list(families.values()))[0]
    mechanisms = [
        mechanism for mechanism in MECHANISMS[family] if mechanism != "piece" or ranks > 1
    ]
    weights = [_TENSOR_WEIGHTS.get(mechanism, 4) for mechanism in mechanisms]
    mechanism = rng.choices(mechanisms, weights)[0]
    sizes = _SIZES.get(mechanism, _SIZES.get(family, _ANY_SIZE))
    return Mutant(
        iteration,
        family,
        mechanism,
        "one" if mechanism == "piece" else rng.choice(("one", "all")),
        10 ** rng.uniform(*sizes),
        rng.randrange(1 << 30),
    )
