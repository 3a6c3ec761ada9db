"""Draws the options of one model, by half. The halves share no seed, and differ in kind."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Options = dict[str, Any]


@dataclass(frozen=True)
class Range:
    """What a half draws from. Numbers are probabilities where nothing else is said."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    head_widths: tuple[int, ...]
    lengths: tuple[int, ...]
    vocabularies: tuple[int, ...]
    rows: tuple[int, ...]  # of the global batch
    experts: float
    expert_numbers: tuple[int, ...]
    precisions: dict[str, float]
    learned: float
    gelu: float
    window: float
    sigmoid: float
    capacity: float
    ranks: dict[int, float]  # of a candidate: weights


DEVELOPMENT = Range(
    layers=(2, 2, 2, 2, 2, 4, 4, 3, 6),
    heads=(4, 4, 8),
    head_widths=(8, 16),
    lengths=(16, 16, 24, 32, 32, 48),
    vocabularies=(64, 128, 256, 512),
    rows=(4, 4, 4, 8),
    experts=0.4,
    expert_numbers=(4, 4, 8),
    precisions={"": 0.4, "bf16": 0.47, "fp16": 0.13},
    learned=0.2,
    gelu=0.3,
    window=0.12,
    sigmoid=0.25,
    capacity=0.06,
    ranks={2: 0.64, 4: 0.31, 8: 0.05},
)
HELD_OUT = Range(
    layers=(4, 4, 6, 8),
    heads=(8, 8, 12, 16),
    head_widths=(10, 12, 18),
    lengths=(64, 80, 96),
    vocabularies=(640, 960, 1536, 2048),
    rows=(4, 8, 8),
    experts=0.45,
    expert_numbers=(6, 8, 8, 16),
    precisions={"": 0.3, "bf16": 0.4, "fp16": 0.3},
    learned=0.55,
    gelu=0.6,
    window=0.35,
    sigmoid=0.65,
    capacity=0.25,
    ranks={2: 0.1, 4: 0.5, 8: 0.4},
)
HALVES = {"A": DEVELOPMENT, "B": HELD_OUT}


def draw_options(rng: random.Random, of: Range) -> Options:
    """Options of the model and the training, the same on both sides."""
    options = _sizes(rng, of)
    options |= _experts(rng, of, options) if rng.random() < of.experts else _dense(rng)
    options |= _attention(rng, of, options)
    options |= _training(rng, of)
    options |= _optimizer(rng)
    if options.get("mtp"):
        options["positions"] = "rope"
    return options


def words(options: Options) -> tuple[str, ...]:
    """As flags: True is a flag alone, False its negation."""
    flags: list[str] = []
    for name, value in options.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is False:
            flags.append(f"--no-{name}")
        elif value is not None:
            flags += [f"--{name}", str(value)]
    return tuple(flags)


def _sizes(rng: random.Random, of: Range) -> Options:
    heads = rng.choice(of.heads)
    hidden = heads * rng.choice(of.head_widths)
    micro_batch = rng.choice((1, 1, 2))
    return {
        "layers": rng.choice(of.layers),
        "hidden": hidden,
        "heads": heads,
        "kv-groups": rng.choice((heads, heads // 2, 2)),
        "ffn": hidden * rng.choice((1, 2, 4)),
        "seq": rng.choice(of.lengths),
        "vocab": rng.choice(of.vocabularies),
        "micro-batch": micro_batch,
        "global-batch": rng.choice(of.rows) * rng.choice((1, micro_batch)),
        "seed": rng.randrange(1, 1_000_000),
    }


def _dense(rng: random.Random) -> Options:
    options: Options = {}
    if rng.random() < 0.3:
        options["linear-bias"] = False
    if rng.random() < 0.3:
        options["weights-by-name"] = True
    if rng.random() < 0.08:
        options["freeze"] = rng.choice(("linear_fc1", "linear_proj", "input_layernorm"))
    if rng.random() < 0.1:
        options |= {"linears": "te", "norm": "own", "feed-forward": "own"}
    if rng.random() < 0.08:
        options["label-smoothing"] = 0.1
    return options


def _experts(rng: random.Random, of: Range, sizes: Options) -> Options:
    options: Options = {"experts": rng.choice(of.expert_numbers)}
    options["topk"] = rng.choice((1, 2, 2, 2, 3))
    options["dispatcher"] = rng.choice(("alltoall", "alltoall", "allgather"))
    if rng.random() < of.sigmoid:
        options["router-scores"] = "sigmoid"
        if rng.random() < 0.7:
            options["expert-bias"] = True
    if options["topk"] == 1 or rng.random() < 0.2:
        options["router-pre-softmax"] = True
    if rng.random() < 0.4:
        options["aux-loss"] = rng.choice(
            ("aux_loss", "aux_loss", "seq_aux_loss", "global_aux_loss")
        )
        options["aux-loss-coeff"] = rng.choice((1e-3, 1e-2))
    if rng.random() < 0.3:
        options["z-loss"] = rng.choice((1e-3, 1e-2))
    if rng.random() < 0.3:
        options["shared-expert-ffn"] = sizes["hidden"]
        if rng.random() < 0.5:
            options["shared-expert-gate"] = True
    if rng.random() < 0.2:
        options["moe-layer-freq"] = 2
    if rng.random() < of.capacity:
        options |= {"capacity-factor": rng.choice((0.6, 1.0, 1.5)), "dispatcher": "alltoall"}
        if rng.random() < 0.5:
            options["pad-to-capacity"] = True
    return options


def _attention(rng: random.Random, of: Range, sizes: Options) -> Options:
    options: Options = {}
    if rng.random() < of.learned:
        options["positions"] = "learned"
    if rng.random() < of.gelu:
        options["gated"] = False
    if rng.random() < 0.4:
        options["tied"] = False
    if rng.random() < 0.2:
        options["qk-layernorm"] = True
    if rng.random() < 0.08:
        options["qk-layer-scaling"] = True
    if rng.random() < of.window:
        options["window"] = rng.choice((3, 7, sizes["seq"] // 2))
        if rng.random() < 0.5:
            options["window-skip"] = rng.choice((2, 3))
    if rng.random() < 0.08:
        options["softmax"] = rng.choice(("off-by-one", "learnable"))
    if rng.random() < 0.05:
        options["mtp"] = 1
    options["init-std"] = rng.choice((0.02, 0.02, 0.006, 0.05))
    return options


def _training(rng: random.Random, of: Range) -> Options:
    options: Options = {}
    precision = rng.choices(list(of.precisions), list(of.precisions.values()))[0]
    if precision:
        options[precision] = True
    if precision == "fp16":
        scale = rng.choice(("", "loss-scale", "initial-loss-scale"))
        if scale:
            options[scale] = rng.choice((256.0, 4096.0))
    if rng.random() < 0.2:
        options |= {"loss-mask": "uneven", "per-token-loss": True}
    elif rng.random() < 0.06:
        options["per-token-loss"] = True
    if rng.random() < 0.08:
        options["dropout"] = 0.1
    if rng.random() < 0.04:
        options["repeat"] = True
    return options


def _optimizer(rng: random.Random) -> Options:
    options: Options = {
        "lr": rng.choice((1e-4, 1e-3, 5e-3)),
        "weight-decay": rng.choice((0.0, 0.01, 0.1)),
        "clip": rng.choice((0.0, 0.1, 1.0, 1.0)),
    }
    kind = rng.random()
    if kind < 0.2:
        options["optimizer"] = "sgd"
    elif kind < 0.35:
        options["decoupled-weight-decay"] = False
    else:
        options["adam-beta2"] = rng.choice((0.95, 0.999))
    if rng.random() < 0.5:
        options["scheduler"] = True
        if rng.random() < 0.2:
            options["decoupled-lr"] = 1e-4
    return options
