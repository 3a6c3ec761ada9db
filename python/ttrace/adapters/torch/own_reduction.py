"""Data parallelism without a wrapper: the loop reduces gradients over its ranks by itself.

Nothing of the model says that its ranks are data-parallel. It is presumed from the first forward
on, and shown or refuted when the gradients are complete: most of what this rank's backwards made
has to have gone through collectives over all ranks. What did not, or did over others, is then a
fault of the loop for the check to find. If there was nothing of the kind, the ranks divide the work
in some other way, and the run is refused as one that cannot be followed.

Gradients are known by where they lie in memory. Copies of them (flattened, cast) are not, and are
counted: as many elements as gradients have, summed at that time, are gradients.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch

from ttrace.adapters.torch.refusals import Unsupported
from ttrace.capture.collective_calls import Call

_SUMS = ("all_reduce", "reduce", "reduce_scatter")
_EXCHANGES = ("send", "recv", "all_to_all")
_WAY_OUT = (
    "wrap the model in DistributedDataParallel, before or after ttrace.attach; or reduce all"
    " gradients over all ranks by collectives of torch.distributed, between backward and step"
)


@dataclass
class _Group:
    """What went through collectives among the same ranks."""

    named: dict[str, int] = field(default_factory=dict)  # parameters -> how often
    elements: int = 0  # of what may be copies of gradients


class OwnReduction:
    """What one rank's loop does to the gradients of one iteration."""

    def __init__(self) -> None:
        self.arrived_last = ""  # the parameter whose hooks run, within a backward
        self.counts_copies = False  # whether some of what was reduced has no name
        # Parameters that no backward had reached when gradients were reduced for the first time
        # after it, by whether their gradients had anything in them.
        self.unreached: dict[str, bool] = {}
        self._groups: dict[frozenset[int], _Group] = {}
        self._sent: set[torch.dtype] = set()
        self._late: dict[str, set[int]] = {}  # reduced before these micro-batches added to them
        self._exchanges = ""

    def again(self) -> OwnReduction:
        """For a leg of the iteration, of which nothing has to be shown any more."""
        other = OwnReduction()
        other.unreached = self.unreached
        return other

    def arrived(self, fqn: str, micro_batch: int) -> None:
        """A term of a parameter's gradient, which is added to what is there."""
        self.arrived_last = fqn
        if any(fqn in group.named for group in self._groups.values()):
            self._late.setdefault(fqn, set()).add(micro_batch)

    def heard(self, call: Call, names: Sequence[str], is_model: bool) -> bool:
        """A collective outside of the model's forward, which concerns the gradients `names` as far
        as that can be seen. `is_model`: it belongs to the model's own backward. Whether it is taken
        for a reduction of gradients."""
        floating = [t for t in call.tensors if t.is_floating_point()]
        if call.kind in _EXCHANGES and not names:
            if any(tensor.dim() > 1 for tensor in floating):
                self._exchanges = call.kind
            return False
        is_copy = not names and not is_model and call.kind in _SUMS and bool(floating)
        if not names and not is_copy:
            return False
        group = self._groups.setdefault(frozenset(call.members), _Group())
        self._sent.update(tensor.dtype for tensor in floating)
        for name in names:
            group.named[name] = group.named.get(name, 0) + 1
            self._late.pop(name, None)
        if is_copy:
            group.elements += sum(tensor.numel() for tensor in floating)
            self.counts_copies = True
        return True

    def adds_nothing_to(self, names: Iterable[str], reached: Container[str]) -> list[str]:
        """Those of `names` whose gradients this rank reduced without adding anything to them.
        `reached`: those that a backward has, after all."""
        return [n for n in names if self.unreached.get(n) is False and n not in reached]

    def confirm(self, ranks: Sequence[int], elements: Mapping[str, int]) -> None:
        """`elements`: how many each gradient has that this iteration's backwards made. Raises
        Unsupported if they do not show that these ranks are data-parallel."""
        total = sum(elements.values())
        if total == 0:
            return  # and nothing will be compared
        if self._exchanges:
            raise _not_followed(
                len(ranks), f"the loop passes tensors from rank to rank itself ({self._exchanges})"
            )
        if 2 * self._covered(frozenset(ranks), elements) > total:
            return
        if self._is_staged(len(ranks), elements, total):
            return
        raise _not_followed(len(ranks), self._reason(len(ranks), elements))

    def early(self) -> dict[tuple[int, ...], list[str]]:
        """Gradients that the loop had reduced when these micro-batches added to them, and did not
        reduce again."""
        out: dict[tuple[int, ...], list[str]] = {}
        for fqn, late in self._late.items():
            out.setdefault(tuple(sorted(late)), []).append(fqn)
        return out

    def sends_less_than(self, dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
        """A floating dtype of fewer digits than gradients have, in which some were sent."""
        most = max((torch.finfo(dtype).eps for dtype in dtypes), default=None)
        if most is None or not self._sent:
            return None
        coarsest = max(self._sent, key=lambda dtype: torch.finfo(dtype).eps)
        return coarsest if torch.finfo(coarsest).eps > most else None

    def times(self, elements: Mapping[str, int]) -> int:
        """How often a gradient was sent, at most."""
        total = max(1, sum(elements.values()))
        groups = self._groups.values()
        return sum(max((*g.named.values(), -(-g.elements // total))) for g in groups)

    def _covered(self, ranks: frozenset[int], elements: Mapping[str, int]) -> int:
        group = self._groups.get(ranks)
        if group is None:
            return 0
        named = sum(elements.get(name, 0) for name in group.named)
        return named + min(group.elements, sum(elements.values()) - named)

    def _is_staged(self, count: int, elements: Mapping[str, int], total: int) -> bool:
        """Within machines and then among them: each rank sees groups that meet in itself alone, and
        the later ones may get the part that a reduce_scatter has left."""
        groups = sorted(self._groups, key=lambda ranks: -self._covered(ranks, elements))
        if len(groups) < 2 or prod(map(len, groups)) != count:
            return False
        rest = total
        for ranks in groups:
            if 2 * self._covered(ranks, elements) <= rest:
                return False
            rest //= len(ranks)
        return True

    def _reason(self, count: int, elements: Mapping[str, int]) -> str:
        gradients = f"the {len(elements)} gradients of an iteration"
        largest = max(
            self._groups, key=lambda ranks: self._covered(ranks, elements), default=frozenset()
        )
        covered = self._covered(largest, elements)
        share = f"{covered:,} of their {sum(elements.values()):,} elements"
        if not covered:
            what = f"no collective reduced {gradients} between backward and step"
        elif len(largest) == count:
            what = f"of {gradients} collectives over all ranks reduced {share}"
        else:
            ranks = ", ".join(map(str, sorted(largest)))
            what = (
                f"{gradients} are reduced over rank{'s' if len(largest) > 1 else ''} {ranks} alone"
                f" ({share}): what the other ranks do cannot be seen"
            )
        return f"nothing of the model says how they share its work, and {what}"


def _not_followed(world_size: int, reason: str) -> Unsupported:
    return Unsupported(f"{world_size} ranks without DistributedDataParallel", reason, _WAY_OUT)
