"""Which clean runs: models that grow in one dimension at a time, and models of another kind.

The grid varies width, depth, sequence, vocabulary and tensor parallelism. The second draw was made
after every constant of the judge was frozen and differs in kind: other layers, losses, weights
that have been trained for some steps, and sizes drawn at random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TWO_RANKS = {
    "TP2": ("--tp", "2"),
    "TP2 SP": ("--tp", "2", "--sp"),
    "CP2": ("--cp", "2"),
    "PP2": ("--pp", "2"),
    "DP2": (),
}
_WIDE_TENSOR_PARALLEL = {
    "TP4": (4, ("--tp", "4")),
    "TP4 SP": (4, ("--tp", "4", "--sp")),
    "TP8": (8, ("--tp", "8")),
    "TP8 SP": (8, ("--tp", "8", "--sp")),
    "TP4 SP PP2": (8, ("--tp", "4", "--sp", "--pp", "2")),
}
_SMALL = {
    "layers": 2,
    "hidden": 64,
    "ffn": 128,
    "heads": 4,
    "kv-groups": 2,
    "seq": 64,
    "vocab": 512,
    "micro-batch": 1,
    "global-batch": 4,
}


@dataclass(frozen=True)
class Candidate:
    name: str
    processes: int
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """One reference and the candidates that are compared with it. `size` is what `axis` counts."""

    draw: int
    axis: str
    size: int
    bf16: bool
    flags: tuple[str, ...]
    iteration: int
    candidates: tuple[Candidate, ...]

    @property
    def name(self) -> str:
        return f"{self.axis} {self.size} {'bf16' if self.bf16 else 'fp32'}"


def grid() -> list[Model]:
    """Cheap ones first, so that a run that is cut short has seen every dimension."""
    models = []
    for bf16 in (True, False):
        for axis, sizes in (
            ("hidden", (64, 256)),
            ("layers", (24,)),
            ("seq", (256, 512)),
            ("vocab", (8192,)),
            ("heads", (8,)),
            ("hidden", (512,)),
            ("seq", (1024,)),
            ("vocab", (32768,)),
            ("layers", (48,)),
            ("hidden", (1024, 2048)),
        ):
            models += [_grid_model(axis, size, bf16) for size in sizes]
    return sorted(models, key=_cost)


def _grid_model(axis: str, size: int, bf16: bool) -> Model:
    words = dict(_SMALL)
    if axis == "heads":
        # Tensor parallelism cuts heads and, in attention, groups of them.
        words |= {"heads": size, "kv-groups": size, "hidden": 128}
        candidates = tuple(Candidate(n, p, f) for n, (p, f) in _WIDE_TENSOR_PARALLEL.items())
    else:
        words[axis] = size
        candidates = tuple(Candidate(n, 2, f) for n, f in TWO_RANKS.items())
    if axis == "hidden":
        words |= {"ffn": 2 * size, "heads": max(4, size // 64), "vocab": 2048}
        words["kv-groups"] = words["heads"] // 2
    if size == 2048:
        words |= {"ffn": size, "seq": 32}  # what the disk holds
    if axis == "layers":
        words |= {"hidden": 32, "ffn": 64, "seq": 32, "vocab": 256}
    return Model(1, axis, size, bf16, _flags(words, bf16), 0, candidates)


def _cost(model: Model) -> int:
    dearest = {"hidden": 256, "layers": 24, "seq": 256, "vocab": 8192, "heads": 4}
    return 10 * model.size // dearest[model.axis]


def second_draw(models: int) -> list[Model]:
    return [_other_kind(random.Random(f"second draw {number}")) for number in range(models)]


def _other_kind(rng: random.Random) -> Model:
    bf16 = rng.random() < 0.5
    heads = rng.choice((4, 6, 8))
    hidden = heads * rng.choice((8, 12, 20, 40))
    words = {
        "layers": rng.choice((2, 3, 4, 6)),
        "hidden": hidden,
        "ffn": 4 * hidden if rng.random() < 0.5 else 2 * hidden,
        "heads": heads,
        "kv-groups": rng.choice((2, heads)),
        "seq": rng.choice((24, 48, 96, 160)),
        "vocab": rng.choice((96, 1000, 3000)),
        "micro-batch": rng.choice((1, 2)),
        "seed": rng.randrange(1, 10000),
    }
    words["global-batch"] = words["micro-batch"] * rng.choice((2, 4))
    flags = list(_flags(words, bf16))
    flags += rng.choice(([], ["--no-gated"]))
    flags += rng.choice(([], ["--no-tied"]))
    flags += rng.choice(([], ["--positions", "learned"]))
    flags += rng.choice(([], ["--qk-layernorm"]))
    flags += rng.choice(([], ["--window", "7"]))
    flags += rng.choice(([], [], ["--loss-mask", "uneven", "--per-token-loss"]))
    flags += ["--init-std", rng.choice(("0.005", "0.02", "0.06"))]
    flags += ["--lr", rng.choice(("1e-4", "3e-3"))]
    chosen = rng.sample(sorted(TWO_RANKS), 4)
    # Weights that have moved, and optimizer states that are not empty.
    iteration = rng.choice((1, 3, 6))
    candidates = tuple(Candidate(name, 2, TWO_RANKS[name]) for name in chosen)
    return Model(2, "hidden", hidden, bf16, tuple(flags), iteration, candidates)


def _flags(words: dict[str, int], bf16: bool) -> tuple[str, ...]:
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    return (*flags, "--bf16") if bf16 else tuple(flags)
