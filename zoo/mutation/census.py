"""The places at which a fault can be, counted in the clean first iteration, and drawing one.

Ranks of one pipeline stage exchange their lists once, so that the same draw names the same place on
all of them without a word between them. Most places are on all ranks; an expert is on those that
have it, and a distributed optimizer's part of a parameter on those that own some of it.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from megatron.core import parallel_state

from mutation.mutant import ACROSS_STAGES, Mutant


@dataclass(frozen=True)
class Site:
    """`kind` is a collective's name, or the family of another fault. `group` of a dropout: that
    whose ranks hold parts there, not copies. `ordinal` counts equal sites of one micro-batch; of a
    send it says which (`sent`)."""

    phase: str
    fqn: str
    kind: str
    group: str = ""
    group_size: int = 1
    ordinal: int = 0


@dataclass
class Census:
    sites: list[Site] = field(default_factory=list)
    # By chunk, in the order in which they finish.
    modules: dict[int, list[str]] = field(default_factory=dict)
    micro_batches: int = 0
    # Places in the stage of the ranks that have the site. None are listed: all have it.
    owners: dict[Site, list[int]] = field(default_factory=dict)
    squares: dict[Site, float] = field(default_factory=dict)  # of the values of this rank
    pieces: dict[Site, list[float]] = field(default_factory=dict)  # the same of all of the stage

    def add(self, site: Site) -> None:
        if site not in self.sites:
            self.sites.append(site)

    def weigh(self, site: Site, value: torch.Tensor) -> None:
        """Tells copies from pieces, and how much of the whole a piece is. Frozen parameters have no
        gradient."""
        if value is not None and site not in self.pieces:
            square = float(value.detach().double().square().sum())
            self.squares[site] = self.squares.get(site, 0.0) + square

    def gather(self) -> None:
        """What each rank of the stage has weighed. Past torch.distributed's own functions, so that
        no tool takes it for the trainer's."""
        group = parallel_state.get_tensor_and_data_parallel_group(with_context_parallel=True)
        assert group.rank() == stage()[2]
        assert group.size() == stage()[3]
        self._unite(_of_all(group, self.sites))
        known = [site for site in self.sites if site.kind in _WEIGHED]
        own = torch.tensor([self.squares.get(site, 0.0) for site in known], dtype=torch.float64)
        of_all = torch.empty(group.size() * len(own), dtype=torch.float64)
        group._allgather_base(of_all, own).wait()
        columns = of_all.view(group.size(), len(own)).t().tolist()
        self.pieces = dict(zip(known, columns, strict=True))

    def _unite(self, lists: list[list[Site]]) -> None:
        """One list for all ranks: that of the first, then what others have beside it."""
        have: dict[Site, list[int]] = {}
        for rank, sites in enumerate(lists):
            for site in sites:
                have.setdefault(site, []).append(rank)
        self.sites = list(have)
        self.owners = {site: ranks for site, ranks in have.items() if len(ranks) < len(lists)}

    def owners_of(self, site: Site) -> list[int]:
        return self.owners.get(site, list(range(stage()[3])))


def _of_all(group: Any, sites: list[Site]) -> list[list[Site]]:
    """The lists of all ranks of a group, in its order."""
    text = json.dumps([asdict(site) for site in sites]).encode()
    lengths = torch.empty(group.size(), dtype=torch.int64)
    group._allgather_base(lengths, torch.tensor([len(text)])).wait()
    width = int(lengths.max())
    own = torch.frombuffer(bytearray(text.ljust(width)), dtype=torch.uint8)
    found = torch.empty(group.size() * width, dtype=torch.uint8)
    group._allgather_base(found, own).wait()
    return [
        [Site(**fields) for fields in json.loads(bytes(row.tolist()))]
        for row in found.view(group.size(), width)
    ]


def sending(chunk: int, direction: str) -> int:
    """The ordinal of a send of a chunk's output, or of the gradient of its input."""
    return 2 * chunk + (direction == "backward")


def sent(site: Site) -> tuple[int, str]:
    """(chunk, direction)"""
    return site.ordinal // 2, "backward" if site.ordinal % 2 else "forward"


@dataclass(frozen=True)
class Draw:
    """A mutant that has found its place. `micro_batch` None: all of them."""

    mutant: Mutant
    site: Site
    holds: bool  # whether this rank's part is hit
    micro_batch: int | None
    rng: random.Random
    holder: int = 0  # the one rank's place in the stage
    share: float | None = None  # of a piece: its norm by the whole's
    partner: Site | None = None  # the other dropout that uses the same mask

    def hits(self, micro_batch: int) -> bool:
        if self.mutant.mechanism == "delay" and micro_batch == 0:
            return False
        return self.micro_batch is None or self.micro_batch == micro_batch

    def random(self) -> random.Random:
        """Always the same numbers, on every rank and in every call of the schedule."""
        return random.Random(self.mutant.seed + 1)


def stage() -> tuple[int, int, int, int]:
    """This rank's pipeline stage, the number of stages, its place in the stage, ranks of it."""
    from torch.distributed import get_rank, get_world_size

    stages = parallel_state.get_pipeline_model_parallel_world_size()
    ranks = get_world_size() // stages
    mine = parallel_state.get_pipeline_model_parallel_rank()
    # Pipeline stages are the outermost dimension of Megatron's rank order.
    assert get_rank() // ranks == mine
    return mine, stages, get_rank() % ranks, ranks


def draw(mutant: Mutant, census: Census) -> Draw | None:
    """None: it is not this stage's, or there is no such place in it."""
    mine, stages, position, ranks = stage()
    rng = random.Random(mutant.seed)
    chosen_stage, holder = rng.randrange(stages), rng.randrange(ranks)
    if chosen_stage != mine:
        return None
    sites = [site for site in census.sites if _possible(mutant, site, census)]
    if not sites:
        return None
    # By phase and kind first: a model has many more calls of some kinds than of others.
    kinds = sorted({(site.phase, site.kind) for site in sites})
    # The optimizer's sums all serve one number, the norm.
    weights = [1 if phase == "optimizer" and name in _SUMS else 4 for phase, name in kinds]
    kind = rng.choices(kinds, weights)[0]
    site = rng.choice([site for site in sites if (site.phase, site.kind) == kind])
    first = 1 if mutant.mechanism == "delay" else 0
    micro_batch: int | None = None
    if site.phase in ("forward", "backward", "between") and rng.random() < 0.5:
        micro_batch = rng.randrange(first, max(census.micro_batches, first + 1))
    share = partner = None
    owners = census.owners_of(site)
    holder = owners[holder % len(owners)]
    if mutant.mechanism == "piece":
        site, holder, share = _small_piece(sites, census, rng)
        owners = census.owners_of(site)
    if mutant.family == "mask":
        micro_batch = None  # a seed is wrong for all of them
        if mutant.mechanism == "layers":
            partner = rng.choice(_alike(site, census))
    holds = position in owners and (mutant.ranks == "all" or position == holder)
    return Draw(mutant, site, holds, micro_batch, rng, holder, share, partner)


_SUMS = ("all_reduce", "reduce_scatter_tensor")
_GATHERS = ("all_gather_into_tensor",)
_COLLECTIVES = (*_SUMS, *_GATHERS, "all_to_all_single", "isend")
_WEIGHED = ("output", "grad_input", "grad_local", "grad_reduced")
# Copies differ by round-off, pieces by far more.
_OF_COPIES = 1e-4
_PIECES_TO_CHOOSE_FROM = 4


def _in_pieces(squares: list[float]) -> bool:
    """Of the ranks that have a tensor: an expert's on one rank is no piece, but the whole."""
    return max(squares) - min(squares) > _OF_COPIES * max(squares)


def _small_piece(sites: list[Site], census: Census, rng: random.Random) -> tuple[Site, int, float]:
    """The smallest of some that are drawn: where a piece is wrong altogether, what is small of the
    whole is hard to find."""
    chosen = rng.sample(sites, min(len(sites), _PIECES_TO_CHOOSE_FROM))
    shares = []
    for site in chosen:
        squares = census.pieces[site]
        square, holder = min((s, rank) for rank, s in enumerate(squares) if s > 0)
        shares.append((square / sum(squares), holder))
    index = min(range(len(chosen)), key=lambda i: shares[i])
    square, holder = shares[index]
    return chosen[index], holder, square**0.5


def is_of_heads(site: Site) -> bool:
    """Whether a dropout is that of attention probabilities, which have another shape than hidden
    states."""
    return site.fqn.endswith("attention_dropout")


def _alike(site: Site, census: Census) -> list[Site]:
    """Dropouts whose masks could be this one's."""
    return [
        other
        for other in census.sites
        if other.kind == "mask" and other != site and is_of_heads(other) == is_of_heads(site)
    ]


def _mask_possible(mutant: Mutant, site: Site, census: Census) -> bool:
    if site.kind != "mask":
        return False
    state = parallel_state
    split = state.get_tensor_model_parallel_world_size() > 1
    return {
        "data": state.get_data_parallel_world_size() > 1,
        "parts": split and site.group == "tp",
        "copies": split and site.group == "",
        "layers": bool(_alike(site, census)),
        "micro_batches": census.micro_batches > 1,
    }[mutant.mechanism]


def _possible(mutant: Mutant, site: Site, census: Census) -> bool:
    if mutant.family == "mask":
        return _mask_possible(mutant, site, census)
    if mutant.mechanism == "piece":
        owners = census.owners_of(site)
        return site.kind == mutant.family and _in_pieces([census.pieces[site][o] for o in owners])
    if mutant.family != "collective":
        return site.kind == mutant.family
    if site.kind not in _COLLECTIVES:
        return False
    if mutant.mechanism == "delay":
        repeated = site.phase in ("forward", "backward", "between")
        # A router sends another number of tokens in each micro-batch.
        equal = site.kind != "all_to_all_single"
        return repeated and equal and census.micro_batches > 1
    if mutant.mechanism == "double":
        return site.kind in _SUMS
    if mutant.mechanism == "group":
        # How many rows an exchange has for each rank is said of its own group only.
        return site.kind in (*_SUMS, *_GATHERS) and bool(other_groups(site))
    if mutant.mechanism == "drop":
        return site.kind != "isend"  # the receiver would wait forever
    return True


def groups() -> dict[str, Any]:
    """Groups of more than one rank, by name. Those that pipeline stages share are left out: not
    all ranks of a stage call them alike."""
    from torch.distributed import group

    state = parallel_state
    known = {
        "tp": state.get_tensor_model_parallel_group(),
        "cp": state.get_context_parallel_group(),
        "dp": state.get_data_parallel_group(),
        "dp_cp": state.get_data_parallel_group(with_context_parallel=True),
    }
    if stage()[1] == 1:
        known["world"] = group.WORLD
    known = {name: found for name, found in known.items() if found.size() > 1}
    for name, found in _expert_groups():
        # Without experts they are others of the same ranks.
        if found.size() > 1 and not any(_same_ranks(found, other) for other in known.values()):
            known[name] = found
    return known


def _expert_groups() -> list[tuple[str, Any]]:
    state = parallel_state
    return [
        ("ep", state.get_expert_model_parallel_group()),
        ("etp", state.get_expert_tensor_parallel_group()),
        ("etp_ep", state.get_expert_tensor_and_model_parallel_group()),
        ("edp", state.get_expert_data_parallel_group()),
    ]


def _same_ranks(one: Any, other: Any) -> bool:
    from torch.distributed import get_process_group_ranks

    return get_process_group_ranks(one) == get_process_group_ranks(other)


def group_name(group: Any) -> str:
    for name, known in groups().items():
        if _same_ranks(known, group):
            return name
    return ACROSS_STAGES


def other_groups(site: Site) -> list[tuple[str, Any]]:
    """Groups that could be taken for the site's: of other ranks, and for gathers of equal size."""
    known = groups()
    if site.group not in known:
        return []
    return [
        (name, group)
        for name, group in known.items()
        if not _same_ranks(group, known[site.group])
        and (site.kind == "all_reduce" or group.size() == site.group_size)
    ]
