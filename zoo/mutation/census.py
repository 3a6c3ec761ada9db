"""The places at which a fault can be, counted in the clean first iteration, and drawing one.

Ranks of one pipeline stage make the same calls, so that their lists are equal and the same draw
names the same place on all of them without a word between them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from megatron.core import parallel_state

from mutation.mutant import ACROSS_STAGES, Mutant


@dataclass(frozen=True)
class Site:
    """`kind` is a collective's name, or the family of a tensor's fault. `ordinal` counts equal
    sites of one micro-batch."""

    phase: str
    fqn: str
    kind: str
    group: str = ""
    group_size: int = 1
    ordinal: int = 0


@dataclass
class Census:
    sites: list[Site] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)  # in the order in which they finish
    micro_batches: int = 0

    def add(self, site: Site) -> None:
        if site not in self.sites:
            self.sites.append(site)


@dataclass(frozen=True)
class Draw:
    """A mutant that has found its place. `micro_batch` None: all of them."""

    mutant: Mutant
    site: Site
    holds: bool  # whether this rank's part is hit
    micro_batch: int | None
    rng: random.Random

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
    # The optimizer's calls all serve one number, the norm.
    weights = [1 if phase == "optimizer" else 4 for phase, _ in kinds]
    kind = rng.choices(kinds, weights)[0]
    site = rng.choice([site for site in sites if (site.phase, site.kind) == kind])
    first = 1 if mutant.mechanism == "delay" else 0
    micro_batch: int | None = None
    if site.phase in ("forward", "backward", "between") and rng.random() < 0.5:
        micro_batch = rng.randrange(first, max(census.micro_batches, first + 1))
    holds = mutant.ranks == "all" or position == holder
    return Draw(mutant, site, holds, micro_batch, rng)


_SUMS = ("all_reduce", "reduce_scatter_tensor")
_COLLECTIVES = (*_SUMS, "all_gather_into_tensor", "isend")


def _possible(mutant: Mutant, site: Site, census: Census) -> bool:
    if mutant.family != "collective":
        return site.kind == mutant.family
    if site.kind not in _COLLECTIVES:
        return False
    if mutant.mechanism == "delay":
        repeated = site.phase in ("forward", "backward", "between")
        return repeated and census.micro_batches > 1
    if mutant.mechanism == "double":
        return site.kind in _SUMS
    if mutant.mechanism == "group":
        return site.kind != "isend" and bool(other_groups(site))
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
    return {name: found for name, found in known.items() if found.size() > 1}


def group_name(group: Any) -> str:
    from torch.distributed import get_process_group_ranks

    ranks = get_process_group_ranks(group)
    for name, known in groups().items():
        if get_process_group_ranks(known) == ranks:
            return name
    return ACROSS_STAGES


def other_groups(site: Site) -> list[tuple[str, Any]]:
    """Groups that could be taken for the site's: of other ranks, and for gathers of equal size."""
    from torch.distributed import get_process_group_ranks

    known = groups()
    if site.group not in known:
        return []
    right = get_process_group_ranks(known[site.group])
    return [
        (name, group)
        for name, group in known.items()
        if get_process_group_ranks(group) != right
        and (site.kind == "all_reduce" or group.size() == site.group_size)
    ]
