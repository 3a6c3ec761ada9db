"""How a candidate's ranks are laid out, and how it is told to the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Topology:
    """Sizes of the groups; `micro_batch` is a data-parallel rank's rows a call."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    etp: int | None = None
    vpp: int = 1
    sp: bool = False
    distributed_optimizer: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    align_param_gather: bool = False
    bucket_size: int | None = None
    recompute: tuple[str, ...] = ()
    micro_batch: int = 1

    @property
    def processes(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def expert_tp(self) -> int:
        return self.tp if self.etp is None else self.etp

    @property
    def shape(self) -> str:
        """The groups alone: runs of one shape stand in one row of the table."""
        words = [f"TP{self.tp}"] * (self.tp > 1) + ["SP"] * self.sp
        words += [f"CP{self.cp}"] * (self.cp > 1) + [f"PP{self.pp}"] * (self.pp > 1)
        words += [f"VPP{self.vpp}"] * (self.vpp > 1) + [f"DP{self.dp}"] * (self.dp > 1)
        words += [f"EP{self.ep}"] * (self.ep > 1)
        words += [f"ETP{self.etp}"] * (self.etp is not None and self.tp > 1)
        return " ".join(words) or "1 process"

    @property
    def flags(self) -> tuple[str, ...]:
        """Without the data-parallel size, which is what remains of the processes."""
        words: list[str] = []
        for name in ("tp", "cp", "pp", "vpp", "ep"):
            value = getattr(self, name)
            words += [f"--{name}", str(value)] if value > 1 else []
        words += ["--etp", str(self.etp)] if self.etp is not None else []
        for name in (
            "sp",
            "distributed_optimizer",
            "overlap_grad_reduce",
            "overlap_param_gather",
            "align_param_gather",
        ):
            words += [f"--{name.replace('_', '-')}"] if getattr(self, name) else []
        words += ["--bucket-size", str(self.bucket_size)] if self.bucket_size else []
        return (*words, *self.recompute, "--micro-batch", str(self.micro_batch))


def groups(processes: int) -> Iterator[Topology]:
    """Every way to lay out so many ranks, without experts."""
    for tp in _divisors(processes):
        for cp in _divisors(processes // tp):
            for pp in _divisors(processes // tp // cp):
                yield Topology(tp=tp, cp=cp, pp=pp, dp=processes // (tp * cp * pp))


def expert_groups(topology: Topology, experts: int) -> list[tuple[int, int]]:
    """Expert- and expert-tensor-parallel sizes for the same ranks of a stage."""
    ranks = topology.processes // topology.pp
    return [
        (ep, etp)
        for ep in _divisors(ranks)
        for etp in _divisors(ranks // ep)
        if experts % ep == 0 and etp in (1, topology.tp)
    ]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
