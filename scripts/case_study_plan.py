"""What the case study runs: options of the model times topologies, and the bugs that explain what
is not within."""

from __future__ import annotations

from dataclasses import dataclass

NEWEST = "0.16.1"
OLDER = ("0.12.3", "0.13.1", "0.14.0", "0.15.3")
_UNEVEN = ("--loss-mask", "uneven")
_PER_TOKEN = ("--per-token-loss",)
_EXPERTS = ("--experts", "4")
_PADDED = (*_EXPERTS, *_UNEVEN, "--padding-mask")

# Of both runs.
OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "label smoothing": ("--label-smoothing", "0.1"),
    "gathered logits": ("--gathered-logits",),
    # Of small weights the gradients of sinks are nothing beside the others.
    "learned sinks": ("--softmax", "learnable", "--weights-by-name", "--init-std", "0.2"),
    "sinks": ("--softmax", "off-by-one"),
    "uneven": _UNEVEN,
    "per token": _PER_TOKEN,
    "uneven, per token": (*_UNEVEN, *_PER_TOKEN),
    "attention mask": (*_UNEVEN, *_PER_TOKEN, "--attention-mask"),
    "mtp": ("--mtp", "1"),
    "mtp, uneven": ("--mtp", "1", *_UNEVEN),
    "mtp, uneven, per token": ("--mtp", "1", *_UNEVEN, *_PER_TOKEN),
    "mla": ("--mla",),
    "mla, norms": ("--mla", "--qk-layernorm"),
    "norms of heads": ("--qk-layernorm",),
    "scores by layer": ("--qk-layer-scaling",),
    "learned positions": ("--positions", "learned"),
    "untied": ("--no-tied",),
    "no gate, no bias": ("--no-gated", "--no-linear-bias"),
    "recompute": ("--recompute",),
    "recompute parts": ("--recompute-modules", "core_attn", "layernorm"),
    "frozen": ("--freeze", "linear_fc1"),
    # Tied, the last stage's copy has another name and is not frozen: its gradient would wait for
    # one of the first stage for ever.
    "frozen embedding": ("--freeze", "word_embeddings", "--no-tied"),
    "scheduler": ("--scheduler", "--decoupled-lr", "0.01", "--weight-decay", "0.1"),
    "experts": _EXPERTS,
    "experts, aux": (*_EXPERTS, "--aux-loss", "aux_loss"),
    "experts, aux, per token": (*_EXPERTS, "--aux-loss", "aux_loss", *_PER_TOKEN),
    "experts, aux of sequences": (*_EXPERTS, "--aux-loss", "seq_aux_loss"),
    # Counted over micro-batches of all ranks so far: equal only if these are one of the reference.
    "experts, aux of all": (*_EXPERTS, "--aux-loss", "global_aux_loss", "--micro-batch", "4"),
    "experts, four rows": (*_EXPERTS, "--micro-batch", "4"),
    "experts, z": (*_EXPERTS, "--z-loss", "0.01"),
    "experts, z, per token": (*_EXPERTS, "--z-loss", "0.01", *_PER_TOKEN),
    "experts, z, padding": (*_PADDED, "--z-loss", "0.01"),
    "experts, aux, padding": (*_PADDED, "--aux-loss", "aux_loss"),
    "experts, bias": (*_EXPERTS, "--expert-bias"),
    "experts, shared": (*_EXPERTS, "--shared-expert-ffn", "64", "--shared-expert-gate"),
    "experts, allgather": (*_EXPERTS, "--dispatcher", "allgather"),
    "experts, capacity": (*_EXPERTS, "--capacity-factor", "1.0"),
    "experts, padded capacity": (*_EXPERTS, "--capacity-factor", "2.0", "--pad-to-capacity"),
    "experts, recompute": (*_EXPERTS, "--recompute-modules", "moe"),
    "experts, mtp": (*_EXPERTS, "--mtp", "1"),
}

_OVERLAPS = ("--distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
# Processes, and flags of the candidate.
TOPOLOGIES: dict[str, tuple[int, tuple[str, ...]]] = {
    "TP2": (2, ("--tp", "2")),
    "TP2 SP": (2, ("--tp", "2", "--sp")),
    "CP2": (2, ("--cp", "2")),
    "PP2": (2, ("--pp", "2")),
    "PP2 VPP2": (2, ("--pp", "2", "--vpp", "2")),
    "DP2": (2, ()),
    "DP2 halves": (2, ("--micro-batch", "2")),
    "DP2 sharded": (2, _OVERLAPS),
    "TP2 CP2": (4, ("--tp", "2", "--cp", "2")),
    "EP2": (2, ("--ep", "2")),
    "TP2 SP ETP2": (2, ("--tp", "2", "--sp", "--etp", "2")),
    "TP2 SP ETP1": (2, ("--tp", "2", "--sp", "--etp", "1")),
    "TP2 SP EP2 ETP1": (2, ("--tp", "2", "--sp", "--ep", "2", "--etp", "1")),
    "TP2 SP ETP1 DP2": (4, ("--tp", "2", "--sp", "--etp", "1")),
}

# Where each option is tried with the newest release. What the matrix (docs/evidence/matrix.md) has
# is not here again.
GRID: dict[str, tuple[str, ...]] = {
    "plain": ("TP2 SP", "CP2", "DP2 sharded", "TP2 CP2"),
    "label smoothing": ("TP2", "TP2 SP", "CP2"),
    "gathered logits": ("TP2", "TP2 SP", "TP2 CP2"),
    "learned sinks": ("TP2", "TP2 SP", "PP2", "DP2 sharded"),
    "sinks": ("TP2 SP",),
    "uneven": ("TP2 SP", "CP2", "DP2"),
    "per token": ("TP2 SP", "PP2 VPP2", "DP2 sharded"),
    "uneven, per token": ("TP2 SP", "CP2", "DP2"),
    "attention mask": ("TP2", "TP2 SP", "PP2", "DP2"),
    "mtp": ("TP2", "TP2 SP", "CP2", "DP2"),
    "mtp, uneven": ("CP2", "DP2"),
    "mtp, uneven, per token": ("TP2 SP", "CP2", "DP2"),
    "mla": ("TP2", "TP2 SP", "DP2"),
    "mla, norms": ("TP2", "TP2 SP"),
    "norms of heads": ("TP2", "CP2"),
    "scores by layer": ("PP2",),
    "learned positions": ("TP2 SP", "PP2"),
    "untied": ("TP2 SP", "PP2 VPP2"),
    "no gate, no bias": ("TP2 SP",),
    "recompute": ("PP2 VPP2",),
    "recompute parts": ("TP2 SP",),
    "frozen": ("TP2 SP",),
    "frozen embedding": ("TP2", "PP2"),
    "scheduler": ("TP2 SP", "DP2 sharded"),
    "experts": ("TP2 SP ETP1", "TP2 SP EP2 ETP1", "CP2", "DP2 sharded", "TP2 SP ETP1 DP2"),
    "experts, aux": ("EP2", "TP2 SP ETP2", "CP2", "DP2"),
    "experts, aux, per token": ("EP2", "TP2 SP ETP2", "CP2"),
    "experts, aux of sequences": ("TP2 SP ETP2", "CP2"),
    "experts, aux of all": ("DP2 halves", "TP2 SP ETP2"),
    "experts, four rows": ("DP2 halves",),
    "experts, z": ("TP2 SP ETP2", "CP2"),
    "experts, z, per token": ("TP2 SP ETP2", "CP2"),
    "experts, z, padding": ("EP2", "TP2 SP ETP2", "PP2"),
    "experts, aux, padding": ("EP2", "TP2 SP ETP2"),
    "experts, bias": ("TP2 SP ETP2", "CP2"),
    "experts, shared": ("TP2 SP ETP1", "CP2"),
    "experts, allgather": ("EP2", "TP2 SP ETP1"),
    "experts, capacity": ("EP2", "TP2 SP ETP2"),
    "experts, padded capacity": ("EP2",),
    "experts, recompute": ("EP2",),
    "experts, mtp": ("TP2 SP ETP2",),
}


@dataclass(frozen=True)
class Bug:
    """What explains rows that are not within."""

    key: str
    title: str
    cells: tuple[str, ...]  # that show it: "option: topology"
    fix: str | None = None  # a name of zoo/fixes
    versions: tuple[str, ...] = (*OLDER, NEWEST)  # releases that have it


BUGS: tuple[Bug, ...] = (
    Bug(
        "B1",
        "gradients of experts are not summed over the tensor-parallel ranks that all have them",
        (
            "experts: TP2 SP ETP1",
            "experts: TP2 SP ETP1 DP2",
            "experts, shared: TP2 SP ETP1",
            "experts, allgather: TP2 SP ETP1",
        ),
        "experts_over_tensor_ranks",
    ),
    Bug(
        "B2",
        "label smoothing is over a rank's part of the vocabulary",
        ("label smoothing: TP2", "label smoothing: TP2 SP"),
        "smoothing_over_vocabulary",
    ),
    Bug(
        "B3",
        "a loss from gathered logits is ln(tp) too large",
        ("gathered logits: TP2", "gathered logits: TP2 SP", "gathered logits: TP2 CP2"),
        "loss_of_own_logits",
    ),
    Bug(
        "B4",
        "learned attention sinks of the other tensor-parallel ranks are not in the gradient norm",
        ("learned sinks: TP2", "learned sinks: TP2 SP"),
        "sinks_marked",
    ),
    Bug(
        "B5",
        "auxiliary losses of routers are tp and cp times too small where tokens are counted",
        (
            "experts, aux, per token: TP2 SP ETP2",
            "experts, aux, per token: CP2",
            "experts, z, per token: TP2 SP ETP2",
            "experts, z, per token: CP2",
        ),
        "aux_losses_per_token",
    ),
    Bug(
        "B6",
        "a router's z-loss is a mean of means where padding is uneven over tensor-parallel ranks",
        ("experts, z, padding: TP2 SP ETP2",),
        "z_loss_of_all_tokens",
    ),
    Bug(
        "B7",
        "the loss of further tokens is a mean of means over context-parallel ranks",
        ("mtp: CP2",),
        "further_tokens_of_all",
        versions=("0.14.0", "0.15.3", NEWEST),
    ),
    Bug(
        "B8",
        "latent attention: gradients of the keys that all heads share are not summed over tp",
        ("mla: TP2", "mla: TP2 SP", "mla, norms: TP2 SP"),
        "latent_keys_summed",
    ),
    Bug(
        "B9",
        "latent attention: the gradient of the queries' norm is tp times too large",
        ("mla, norms: TP2",),
        "latent_keys_summed,latent_norm_once",
    ),
    Bug(
        "B10",
        "the loss is a mean of means where its mask is uneven over context-parallel ranks",
        ("uneven: CP2",),
        "loss_of_all_tokens",
        versions=("0.13.1", "0.14.0", "0.15.3", NEWEST),
    ),
    Bug(
        "B11",
        "the auxiliary loss over the global batch is dp times too small",
        ("experts, aux of all: DP2 halves",),
        "global_balance_scaled",
    ),
    # The rank's sum is over the tokens of all ranks, and is averaged over ranks: corrected in 0.16.
    Bug(
        "B12",
        "auxiliary losses without per-token loss are cp times too small",
        ("experts, aux: CP2",),
        versions=OLDER,
    ),
    # Each rank's gradient is whole already.
    Bug(
        "B13",
        "the gradient of the gathered projection of further tokens is tp times too large",
        ("mtp: TP2",),
        versions=("0.12.3",),
    ),
    Bug(
        "B14",
        "further tokens are those of a context-parallel rank's own part of the sequence",
        ("mtp: CP2",),
        versions=("0.12.3", "0.13.1"),
    ),
    Bug(
        "B7, B10",
        "both",
        ("mtp, uneven: CP2",),
        "loss_of_all_tokens,further_tokens_of_all",
    ),
)


# What other releases are asked: a run of each bug, and controls.
ELSEWHERE = (
    *(bug.cells[0] for bug in BUGS if "," not in bug.key and NEWEST in bug.versions),
    "plain: TP2 SP",
    "experts, aux: CP2",
    "mtp: TP2",
)


@dataclass(frozen=True)
class Cell:
    version: str
    option: str
    topology: str
    fix: str | None = None

    @property
    def place(self) -> str:
        return f"{self.option}: {self.topology}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Of both runs. Of the other releases a smaller model."""
        small = () if self.version == NEWEST else ("--layers", "2")
        return ("--steps", "2", *small, *OPTIONS[self.option])

    @property
    def name(self) -> str:
        return f"{self.version}: {self.place}" + (f", with `{self.fix}`" if self.fix else "")


def explained(version: str, place: str) -> Bug | None:
    return next((b for b in BUGS if place in b.cells and version in b.versions), None)


def cells() -> list[Cell]:
    """Of the newest release the whole grid, and with each fix the runs that it mends; of the others
    the runs that show something in the newest, and controls."""
    made = [Cell(NEWEST, option, topology) for option in GRID for topology in GRID[option]]
    made += [
        Cell(NEWEST, *place.split(": "), bug.fix)
        for bug in BUGS
        if bug.fix and NEWEST in bug.versions
        for place in bug.cells[:1]
    ]
    made += [Cell(version, *place.split(": ")) for version in OLDER for place in ELSEWHERE]
    return made
