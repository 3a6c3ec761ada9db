"""Writes the tensors of one rank, each by the spec of its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ttrace.capture.device_memory import DeviceMemory, Where
from ttrace.capture.iteration import Iteration
from ttrace.capture.notices import Notices
from ttrace.capture.placed import Box, RoutedRows, Scale
from ttrace.capture.rerun_cost import RerunCost
from ttrace.capture.rewrite import Place
from ttrace.capture.settings import Settings
from ttrace.capture.slots import Slot, may_have_slot, sizes
from ttrace.capture.specs import SpecCache
from ttrace.capture.tensor_bytes import has_memory, host_view, plain
from ttrace.capture.trace_writer import TraceWriter

# What, why, way out.
CUDA_GRAPHS = (
    "CUDA graphs",
    "hooks do not run when a captured graph is replayed: no module is observed",
    "compare the run without CUDA graphs",
)

NO_MEMORY = "its storage has given its memory back"


class Recorder:
    """Once the trace is open."""

    def __init__(
        self,
        settings: Settings,
        writer: TraceWriter,
        native: Any,
        notices: Notices,
        cost: RerunCost,
        now: Callable[[], Iteration],
    ) -> None:
        """`native` makes specs, and takes tensors of devices. `now()`: the iteration that runs."""
        self.specs = SpecCache(native, notices.refused)
        self._settings = settings
        self._writer = writer
        self._devices = DeviceMemory(native, settings.cuda_driver, notices.notice)
        self._notices = notices
        self._cost = cost
        self._now = now
        self._selects_all = not settings.selection.patterns
        self._slots: dict[tuple[str, str, str, str], Slot] = {}  # by fqn, role, arg, pass

    def record(
        self,
        fqn: str,
        role: str,
        arg: str,
        tensor: torch.Tensor,
        placements: str = "",
        *,
        iteration: int,
        pass_: str,
        call: int = 0,
        micro_batch: int = -1,
        row_begin: int = 0,
        batch_dim: int = -1,
        batch_global: int = 0,
        scale: Scale = (1, 1),
        reduced_over: tuple[str, ...] = (),
        box: Box | None = None,
        routed: RoutedRows | None = None,
        whole: tuple[int, ...] | None = None,
        batch: int = 0,
    ) -> None:
        """Writes one tensor, whose dimensions are in canonical order, of the current leg. `box`,
        `whole`: see SpecCache.get. `batch`: which of the iteration's, while it is held."""
        if tensor.layout is torch.sparse_coo:
            tensor = tensor.detach().cpu().to_dense()  # on the host: it is as large as a parameter
        if tensor.layout is not torch.strided:
            self._notices.refused(fqn, f"{role} {arg}: layout {tensor.layout}")
            return
        if not has_memory(tensor):
            self._notices.not_recorded(fqn, role, arg, NO_MEMORY)
            return
        tensor, where = self._readable(tensor)
        spec = self.specs.get(
            fqn,
            role,
            arg,
            tensor,
            placements,
            batch_dim=batch_dim,
            batch_global=batch_global,
            scale=scale,
            reduced_over=reduced_over,
            box=box,
            routed=routed,
            whole=whole,
        )
        if spec is None:
            return
        values = _needs_values(placements, scale, routed)
        self._count(role, micro_batch, *sizes(tensor), values)
        taken = self._writer.append(
            spec,
            self._now().leg,
            iteration,
            call,
            pass_,
            micro_batch,
            row_begin,
            tensor.data_ptr(),
            tensor.stride(),
            where,
            batch,
        )
        if not taken:
            self._in_graph(fqn, role, arg)

    def _readable(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Where | None]:
        """The same values as the writer can take them, and where, if not from this process's
        memory. A device computes them perhaps later, and nothing waits for that."""
        where = None if tensor.is_cpu else self._devices.where(tensor)
        return (host_view(tensor), None) if where is None else (plain(tensor.detach()), where)

    def _in_graph(self, fqn: str, role: str, arg: str) -> None:
        self._notices.unsupported(*CUDA_GRAPHS)
        self._notices.not_recorded(fqn, role, arg, "its stream was captured into a CUDA graph")

    def _count(
        self, role: str, micro_batch: int, size: int, fp32_size: int, needs_values: bool
    ) -> None:
        iteration = self._now()
        if role == "input" and iteration.leg == self._settings.leg:
            iteration.count_input(size)
        self._cost.count(role, micro_batch, size, fp32_size, needs_values)

    def record_in_slot(
        self, place: Place, tensor: torch.Tensor, global_rows: int, batch: int = 0
    ) -> bool:
        """Writes the tensor by what is prepared for its place. False: it is to be written as any
        other. `global_rows`: see `record_of`; `batch`: see `record`."""
        moment, _, fqn, role, arg, call, pass_ = place
        if not self._selects_all or not may_have_slot(tensor):
            return False
        if not has_memory(tensor):
            return False
        slot = self._slots.get((fqn, role, arg, pass_))
        if slot is None or not slot.fits(place, tensor):
            spec = self.spec_at(place, place.rule.canonical(tensor), global_rows)
            if spec is None:
                return False
            values = _needs_values(place.placements, _scale_at(place), place.rule.routed)
            slot = self._slots[fqn, role, arg, pass_] = Slot(place, tensor, spec, values)
        micro_batch = moment.micro_batch
        self._count(role, micro_batch, slot.bytes, slot.fp32_bytes, slot.needs_values)
        where = None
        if not tensor.is_cpu:
            tensor, where = self._readable(tensor)
        taken = self._writer.append(
            slot.spec,
            self._now().leg,
            moment.iteration,
            call,
            pass_,
            micro_batch,
            place.row_begin,
            tensor.data_ptr(),
            slot.strides(tensor.stride()),
            where,
            batch,
        )
        if not taken:
            self._in_graph(fqn, role, arg)
        return True

    def amend(
        self,
        fqn: str,
        role: str,
        arg: str,
        like: torch.Tensor,
        placements: str,
        *,
        iteration: int,
        pass_: str,
        call: int = 0,
        micro_batch: int = -1,
        row_begin: int = 0,
        batch: int = 0,
        **of_spec: Any,
    ) -> None:
        """More is known of a record that is held than when it came: its placements, its rows."""
        del batch  # known before
        spec = self.specs.get(fqn, role, arg, like, placements, **of_spec)
        if spec is not None:
            leg = self._now().leg
            self._writer.amend(spec, leg, iteration, call, pass_, micro_batch, row_begin)

    def spec_at(self, place: Place, canonical: torch.Tensor, global_rows: int) -> Any | None:
        """The Spec of a tensor whose dimensions are in canonical order; None if its shape does not
        fit its rule."""
        return self.specs.get(
            place.fqn,
            place.role,
            place.arg,
            canonical,
            place.placements,
            batch_dim=place.rule.batch_dim,
            batch_global=global_rows if place.rule.batch_dim >= 0 else 0,
            scale=_scale_at(place),
            reduced_over=_reduced_over(place),
            routed=None if place.rule.routed is None else place.rule.routed.rows,
            whole=place.rule.whole,
        )


def record_of(place: Place, tensor: torch.Tensor, global_rows: int) -> dict[str, Any]:
    """What is recorded of an activation or its gradient, as its rule says. `global_rows`: of the
    global batch; while records are held, of one micro-batch."""
    rule = place.rule
    return {
        "fqn": place.fqn,
        "role": place.role,
        "arg": place.arg,
        "tensor": rule.canonical(tensor),
        "placements": place.placements,
        "iteration": place.moment.iteration,
        "pass_": place.pass_,
        "call": place.call,
        "micro_batch": place.moment.micro_batch,
        "row_begin": place.row_begin,
        "batch_dim": rule.batch_dim,
        "batch_global": global_rows if rule.batch_dim >= 0 else 0,
        "scale": _scale_at(place),
        "reduced_over": _reduced_over(place),
        "routed": None if rule.routed is None else rule.routed.rows,
        "whole": rule.whole,
        "always": rule.decides,  # other rows lie where it says
    }


def _needs_values(placements: str, scale: Scale, routed: object) -> bool:
    """Whether noise legs keep them, however large the tensor (src/in_place/leg_reducer.h)."""
    return "Partial" in placements or scale[0] != scale[1] or routed is not None


def _scale_at(place: Place) -> Scale:
    return place.moment.batch.grad_scale if place.pass_ == "backward" else (1, 1)


def _reduced_over(place: Place) -> tuple[str, ...]:
    rule = place.rule
    return rule.grad_reduced_over if place.pass_ == "backward" else rule.reduced_over
