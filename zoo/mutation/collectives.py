"""Faults of one collective call: it is not made, made twice, scaled, permuted, late, or made over
another group.

Where all ranks of a group share the fault the call really is what it is called: a dropped one is
not made. Where one rank is at fault all make the call, because others would wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from mutation.census import Census, Draw, Site, group_name, other_groups, sending
from mutation.course import Course, place_of
from mutation.mutant import ACROSS_STAGES
from mutation.perturb import SizeOfError


class _Done:
    """The handle of a call that is over."""

    def wait(self, *args: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


@contextmanager
def _at_once(group: Any) -> Iterator[None]:
    """Inside torch's coalescing manager a call is only noted for later: take this one out."""
    noted = distributed_c10d._world.pg_coalesce_state
    operations = noted.pop(group, None)
    try:
        yield
    finally:
        if operations is not None:
            noted[group] = operations


class Collectives:
    """Stands before five functions of torch.distributed, wherever Megatron has copied them. Those
    that take a list of tensors of different sizes, as between the tensor-parallel ranks of an
    expert, are left alone."""

    def __init__(self, course: Course, census: Census) -> None:
        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._course, self._census = course, census
        self._calls: dict[Any, int] = {}
        self._late: dict[int, torch.Tensor] = {}  # micro-batch -> the site's result
        self._sent: list[torch.Tensor] = []  # what is sent must live until it is received
        self._replace("all_reduce", self._all_reduce)
        self._replace("all_gather_into_tensor", self._all_gather)
        self._replace("reduce_scatter_tensor", self._reduce_scatter)
        self._replace("all_to_all_single", self._all_to_all)
        self._replace("isend", self._isend)

    def begin_run(self) -> None:
        self.size = SizeOfError()
        self._calls.clear()
        self._late.clear()
        self._sent.clear()

    def _replace(self, name: str, make: Callable[..., Any]) -> None:
        original = getattr(dist, name)
        wrapped = make(original)
        for module in [m for key, m in sys.modules.items() if key.startswith("megatron.")] + [dist]:
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, wrapped)

    def _hit(self, kind: str, tensor: torch.Tensor, group: Any) -> tuple[int, bool] | None:
        """(micro-batch, whether to be at fault) at the drawn site, None elsewhere."""
        course = self._course
        if not course.active or group.size() == 1 or not tensor.is_floating_point():
            return None
        phase, fqn, micro_batch = course.phase, course.module, course.micro_batch
        key = (phase, fqn, kind, micro_batch, course.recomputing)
        ordinal = self._calls.get(key, 0)
        self._calls[key] = ordinal + 1
        if kind == "isend":
            place = place_of(tensor)
            assert place is not None, "neither an output nor the gradient of an input"
            ordinal, micro_batch = sending(place.chunk, place.direction), place.micro_batch
        if phase == "optimizer" and fqn:
            # Chained optimizers gather all buckets, each after its own step: what one call does
            # wrong the next one would mend.
            ordinal = 0
        assert phase is not None
        if course.iteration == 0:
            if micro_batch == 0:
                name = group_name(group)
                self._census.add(Site(phase, fqn, kind, name, group.size(), ordinal))
            return None
        draw = self.draw
        if draw is None:
            return None
        site = draw.site
        if (site.phase, site.fqn, site.kind, site.ordinal) != (phase, fqn, kind, ordinal):
            return None
        return micro_batch, draw.hits(micro_batch)

    # Each takes what it replaces and returns what stands in its place.

    def _all_reduce(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_reduce(
            tensor: torch.Tensor,
            op: Any = dist.ReduceOp.SUM,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            # A maximum only keeps exponentials in range: no value depends on it.
            known = dist.group.WORLD if group is None else group
            summed = op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
            hit = self._hit("all_reduce", tensor, known) if summed else None
            if hit is None:
                return original(tensor, op=op, group=group, async_op=async_op)
            with _at_once(known):

                def call(values: torch.Tensor, over: Any = None) -> torch.Tensor:
                    original(values, op=op, group=over or group)
                    return values

                if group_name(known) == ACROSS_STAGES:
                    wrong = self._reduced_across_stages(hit, tensor.clone(), call)
                else:
                    right = tensor.clone()
                    known.allreduce([right], _plain(op)).wait()
                    wrong = self._reduced(hit, tensor.clone(), right, call)
                tensor.copy_(wrong)
            return _Done() if async_op else None

        return all_reduce

    def _reduced(
        self, hit: tuple[int, bool], own: torch.Tensor, right: torch.Tensor, call: Any
    ) -> torch.Tensor:
        draw = self.draw
        assert draw is not None
        mechanism, everywhere = draw.mutant.mechanism, draw.mutant.ranks == "all"
        if not hit[1]:
            return self._finish(hit, call(own.clone()), right)
        if mechanism == "drop" and everywhere:
            wrong = own
        elif mechanism == "double" and everywhere:
            wrong = call(call(own.clone()))
        elif mechanism == "double":
            wrong = call(2 * own if draw.holds else own.clone())
        elif mechanism == "group":
            wrong = call(own.clone(), self._other_group())
        else:
            wrong = call(own.clone())
            if mechanism == "drop" and draw.holds:
                wrong = own
        return self._finish(hit, wrong, right)

    def _reduced_across_stages(
        self, hit: tuple[int, bool], own: torch.Tensor, call: Any
    ) -> torch.Tensor:
        """The other stages know of no fault: they make one call, and so must this one."""
        draw = self.draw
        assert draw is not None
        right = call(own.clone())
        wrong = right.clone()
        if hit[1] and draw.holds and draw.mutant.mechanism == "drop":
            wrong = own
        if hit[1] and draw.holds and draw.mutant.mechanism == "double":
            wrong = right + own
        return self._finish(hit, wrong, right)

    def _all_gather(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_gather_into_tensor(
            output_tensor: torch.Tensor,
            input_tensor: torch.Tensor,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            known = dist.group.WORLD if group is None else group
            hit = self._hit("all_gather_into_tensor", input_tensor, known)
            if hit is None:
                return original(output_tensor, input_tensor, group=group, async_op=async_op)
            draw = self.draw
            assert draw is not None
            right = torch.empty_like(output_tensor)
            known._allgather_base(right, input_tensor).wait()
            mechanism, everywhere = draw.mutant.mechanism, draw.mutant.ranks == "all"
            dropped = hit[1] and mechanism == "drop"
            wrong = torch.zeros_like(right)
            if not (dropped and everywhere):
                over = self._other_group() if hit[1] and mechanism == "group" else group
                with _at_once(known):
                    original(wrong, input_tensor, group=over)
            in_place = _same_storage(output_tensor, input_tensor)
            if dropped and draw.holds:
                # Where it is made in place, what was there stays.
                wrong = output_tensor.clone() if in_place else torch.zeros_like(right)
                _keep(known, right, wrong)
            # Nobody writes what a rank gives in place.
            kept = known if in_place else None
            output_tensor.copy_(self._finish(hit, wrong, right, known.size(), kept=kept))
            return _Done() if async_op else None

        return all_gather_into_tensor

    def _all_to_all(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def all_to_all_single(
            output: torch.Tensor,
            input: torch.Tensor,
            output_split_sizes: Any = None,
            input_split_sizes: Any = None,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            known = dist.group.WORLD if group is None else group
            sizes = output_split_sizes, input_split_sizes
            hit = self._hit("all_to_all_single", input, known)
            if hit is None:
                return original(output, input, *sizes, group=group, async_op=async_op)
            draw = self.draw
            assert draw is not None
            right = torch.empty_like(output)
            plain = [[] if size is None else [int(n) for n in size] for size in sizes]
            known.alltoall_base(right, input.contiguous(), *plain, dist.AllToAllOptions()).wait()
            dropped = hit[1] and draw.mutant.mechanism == "drop"
            wrong = torch.zeros_like(right)
            if not (dropped and draw.mutant.ranks == "all"):
                original(wrong, input, *sizes, group=group)
            if dropped and draw.holds:
                wrong = torch.zeros_like(right)
            output.copy_(self._finish(hit, wrong, right, known.size()))
            return _Done() if async_op else None

        return all_to_all_single

    def _reduce_scatter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reduce_scatter_tensor(
            output: torch.Tensor,
            input: torch.Tensor,
            op: Any = dist.ReduceOp.SUM,
            group: Any = None,
            async_op: bool = False,
        ) -> Any:
            known = dist.group.WORLD if group is None else group
            hit = self._hit("reduce_scatter_tensor", input, known)
            if hit is None:
                return original(output, input, op=op, group=group, async_op=async_op)
            draw = self.draw
            assert draw is not None
            whole = input.clone()
            known.allreduce([whole], _plain(op)).wait()
            right = whole.chunk(known.size())[known.rank()].view_as(output).clone()
            mechanism, everywhere = draw.mutant.mechanism, draw.mutant.ranks == "all"
            at_fault = hit[1] and draw.holds
            given = input.clone()
            if at_fault and mechanism == "double":
                given = 2 * given
            if at_fault and mechanism == "permute":
                given = _rolled(given, known.size())
            wrong = input.chunk(known.size())[known.rank()].view_as(output).clone()
            if not (hit[1] and mechanism == "drop" and everywhere):
                over = self._other_group() if hit[1] and mechanism == "group" else group
                own, wrong = wrong, torch.empty_like(output)
                with _at_once(known):
                    original(wrong, given, op=op, group=over)
                if at_fault and mechanism == "drop":
                    wrong = own
            # Its permutation was that of what is given.
            output.copy_(self._finish(hit, wrong, right, permutes=False))
            return _Done() if async_op else None

        return reduce_scatter_tensor

    def _isend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def isend(
            tensor: torch.Tensor, dst: int | None = None, group: Any = None, **rest: Any
        ) -> Any:
            known = dist.group.WORLD if group is None else group
            hit = self._hit("isend", tensor, known)
            if hit is not None:
                right = tensor.detach().clone()
                tensor = self._finish(hit, right.clone(), right).contiguous()
                self._sent.append(tensor)
            return original(tensor, dst=dst, group=group, **rest)

        return isend

    def _finish(
        self,
        hit: tuple[int, bool],
        wrong: torch.Tensor,
        right: torch.Tensor,
        parts: int = 2,
        permutes: bool = True,
        kept: Any = None,
    ) -> torch.Tensor:
        """The faults that are made of a result, and the books. `kept`: a group in whose result this
        rank's own part stays right."""
        draw = self.draw
        assert draw is not None
        micro_batch, at_fault = hit
        mechanism = draw.mutant.mechanism
        if mechanism == "delay":
            self._late[micro_batch] = right.clone()
        if at_fault and draw.holds:
            if mechanism == "scale":
                wrong = wrong * self._factor()
            elif mechanism == "permute" and permutes:
                wrong = _rolled(wrong, parts)
            elif mechanism == "delay":
                wrong = self._late.get(micro_batch - 1, right)
            if kept is not None:
                _keep(kept, right, wrong)
        if at_fault:
            self.size.add(wrong, right)
        return wrong

    def _factor(self) -> float:
        """A mesh size or its inverse as often as any other number."""
        draw = self.draw
        assert draw is not None
        rng, size = draw.random(), draw.site.group_size
        return rng.choice((size, 1 / size, 1 + draw.mutant.size, 1 + draw.mutant.size))

    def _other_group(self) -> Any:
        assert self.draw is not None
        return self.draw.random().choice(other_groups(self.draw.site))[1]


def _keep(group: Any, right: torch.Tensor, wrong: torch.Tensor) -> None:
    """Makes this rank's own part of what is gathered right, in place."""
    wrong.chunk(group.size())[group.rank()].copy_(right.chunk(group.size())[group.rank()])


def _same_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _plain(op: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def _rolled(tensor: torch.Tensor, parts: int) -> torch.Tensor:
    """Each of `parts` in the place of the one before it, along the first dimension that has so
    many, else each element."""
    for dim, length in enumerate(tensor.shape):
        if length >= parts and length % parts == 0:
            return tensor.roll(length // parts, dim)
    return tensor.flatten().roll(1).view_as(tensor)
