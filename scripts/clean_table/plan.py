"""Which runs: models drawn by their number, and the candidates of each."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from clean_table.draw import HALVES, Options, draw_options, words
from clean_table.fits import fits
from clean_table.topology import Topology, expert_groups, groups

# More than are wanted are drawn, in case the trainer refuses some.
_DRAWS = 60
# First and end. Traces of the held-out half are larger: one iteration each.
_ITERATIONS = {"A": ((0, 1), (0, 1), (0, 2), (2, 3)), "B": ((0, 1), (2, 3))}
# Every so many models of the held-out half are another trainer's.
_OTHER_TRAINERS = 7


@dataclass(frozen=True)
class Command:
    """One training command, without the launcher."""

    script: str
    processes: int
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    shape: str
    command: Command


@dataclass(frozen=True)
class Model:
    """One reference, and the candidates that are compared with it until `wanted` were judged."""

    half: str
    number: int
    iterations: tuple[int, int]  # first, end
    reference: Command
    candidates: tuple[Candidate, ...]
    wanted: int

    @property
    def name(self) -> str:
        return f"{self.half}{self.number}"


def models(half: str, end: float = math.inf) -> Iterator[Model]:
    """Those of numbers below `end`. A model that no candidate fits is left out."""
    for number in itertools.takewhile(lambda n: n < end, itertools.count()):
        rng = random.Random(f"clean runs {half} {number}")
        other = half == "B" and number % _OTHER_TRAINERS == _OTHER_TRAINERS - 1
        model = _other_trainer(rng, number) if other else _gpt(rng, half, number)
        if model.candidates:
            yield model


def _gpt(rng: random.Random, half: str, number: int) -> Model:
    options = draw_options(rng, HALVES[half])
    iterations = rng.choice(_ITERATIONS[half])
    shared = {name: value for name, value in options.items() if name != "micro-batch"}
    # The update of the last captured step is seen at the start of the next.
    both = (*words(shared), "--steps", str(iterations[1] + 1))
    reference = Topology(micro_batch=options["micro-batch"])
    # A trusted run is not always a single process.
    if rng.random() < 0.2:
        reference = _draw(rng, options, 2) or reference
    found: dict[Topology, None] = {}
    wanted = rng.randint(3, 6)
    ranks = HALVES[half].ranks
    for _ in range(_DRAWS):
        size = rng.choices(list(ranks), list(ranks.values()))[0]
        topology = _draw(rng, options, size)
        if topology is not None and topology != reference:
            found[topology] = None
    return Model(
        half,
        number,
        iterations,
        _command(reference, both),
        tuple(Candidate(t.shape, _command(t, both)) for t in _varied(found)),
        wanted,
    )


def _varied(topologies: Collection[Topology]) -> list[Topology]:
    """In their order, but those of a shape that was there before come later."""
    times: Counter[str] = Counter()
    keys = []
    for topology in topologies:
        keys.append(times[topology.shape])
        times[topology.shape] += 1
    return [t for _, t in sorted(zip(keys, topologies, strict=True), key=lambda pair: pair[0])]


def _command(topology: Topology, shared: tuple[str, ...]) -> Command:
    return Command("train_gpt.py", topology.processes, (*shared, *topology.flags))


def _draw(rng: random.Random, options: Options, processes: int) -> Topology | None:
    topology = rng.choice(list(groups(processes)))
    topology = replace(topology, sp=topology.tp > 1 and rng.random() < 0.6)
    if options.get("experts"):
        topology = replace(topology, sp=topology.tp > 1)
        sizes = expert_groups(topology, options["experts"])
        # Where experts can be divided, they are in three of four runs.
        divided = [size for size in sizes if size[0] > 1]
        ep, etp = rng.choice(divided if divided and rng.random() < 0.75 else sizes)
        topology = replace(topology, ep=ep, etp=etp if topology.tp > 1 else None)
    if topology.pp > 1 and rng.random() < 0.5:
        topology = replace(topology, vpp=rng.choice((2, 2, 3, 4)))
    topology = _with_reduction(rng, topology)
    topology = replace(
        topology,
        recompute=_recompute(rng, options, topology),
        micro_batch=rng.choice((options["micro-batch"], options["micro-batch"], 1, 2, 4)),
    )
    return topology if fits(options, topology) else None


def _with_reduction(rng: random.Random, topology: Topology) -> Topology:
    distributed = rng.random() < 0.4
    overlap = rng.random() < (0.5 if distributed else 0.15)
    gather = distributed and overlap and rng.random() < 0.6
    return replace(
        topology,
        distributed_optimizer=distributed,
        overlap_grad_reduce=overlap,
        overlap_param_gather=gather,
        align_param_gather=gather and topology.vpp > 1 and rng.random() < 0.5,
        bucket_size=rng.choice((None, 5_000, 20_000)) if overlap else None,
    )


def _recompute(rng: random.Random, options: Options, topology: Topology) -> tuple[str, ...]:
    kind = rng.random()
    if kind < 0.12:
        layers = options["layers"] // (topology.pp * topology.vpp) or 1
        return ("--recompute", "--recompute-layers", str(rng.choice((1, min(2, layers)))))
    if kind < 0.24:
        parts = ["core_attn", "layernorm"]
        if options.get("experts"):
            parts += ["moe", *(["shared_experts"] if options.get("shared-expert-ffn") else [])]
        elif options.get("linear-bias") is False:
            parts += ["mlp"]
        return ("--recompute-modules", *rng.sample(parts, rng.randint(1, 2)))
    return ()


def _other_trainer(rng: random.Random, number: int) -> Model:
    """Scripts of other authors, and plain torch."""
    script = rng.choice(("own_loop.py", "ddp_toy.py", "tensor_parallel_toy.py"))
    iterations = rng.choice(((0, 2), (3, 4)))
    shared = ["--steps", str(iterations[1] + 1), "--global-batch", str(rng.choice((8, 16)))]
    if script == "own_loop.py":
        shared += ["--layers", str(rng.choice((3, 5)))]
        shared += ["--batches", rng.choice(("iterator", "hidden", "by-hand"))]
        shared += rng.choice(([], ["--evaluate"]))
        shapes = {
            "TP2": (2, ("--tp", "2")),
            "TP2 SP PP2": (4, ("--tp", "2", "--sp", "--pp", "2")),
            "PP2 DP2": (4, ("--pp", "2")),
            "TP3 SP": (3, ("--tp", "3", "--sp")),
            "TP2 DP2": (4, ("--tp", "2")),
        }
    else:
        shared += ["--micro-batch", rng.choice(("1", "2"))]
        shared += ["--seed", str(rng.randrange(1, 10000)), "--lr", rng.choice(("1e-4", "3e-3"))]
        if script == "ddp_toy.py":
            shapes = {f"DP{n}": (n, ()) for n in (2, 4, 8)}
        else:
            shapes = {f"TP{n}{sp}": (n, ("--sp",) * bool(sp)) for n in (2, 4) for sp in ("", " SP")}
    candidates = tuple(
        Candidate(name, Command(script, processes, (*shared, *flags)))
        for name, (processes, flags) in shapes.items()
    )
    reference = Command(script, 1, tuple(shared))
    return Model("B", number, iterations, reference, candidates, len(candidates))
