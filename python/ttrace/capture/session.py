"""The capture of one rank: its writer, where in the run it is, and how it gives up.

Whatever goes wrong in capture is this tool's problem and not the training's: the first failure
turns capture off with one line on stderr, and the trace says that it is incomplete.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

from ttrace import _native
from ttrace.capture import process_messages
from ttrace.capture.cost import Cost
from ttrace.capture.device_memory import DeviceMemory, Where
from ttrace.capture.free_memory import Peak
from ttrace.capture.iteration import Iteration
from ttrace.capture.placed import Box, Moment, RoutedRows, Scale
from ttrace.capture.rewrite import Place
from ttrace.capture.settings import Settings
from ttrace.capture.slots import Slot, may_have_slot, sizes
from ttrace.capture.specs import SpecCache
from ttrace.capture.tensor_bytes import has_memory, host_view, plain

# What, why, way out.
CUDA_GRAPHS = (
    "CUDA graphs",
    "hooks do not run when a captured graph is replayed: no module is observed",
    "compare the run without CUDA graphs",
)

NO_MEMORY = "its storage has given its memory back"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Session:
    """States: not started, recording, over (finished or failed). Never goes back."""

    def __init__(self, settings: Settings, first: Iteration | None = None) -> None:
        """`first`: the iteration that capture begins in; without one, it has yet to begin."""
        _native.throw_on_failed_checks()  # a bug of ours must not end the user's process
        self.settings = settings
        self.rank = 0
        self.now = first or Iteration(-1, settings.leg)
        self.over = False
        self._hook_failures: list[str] | None = None  # kept here instead, while a rerun goes on
        self.stopped: str | None = None  # why capture is off, in words for the other ranks
        self.no_reruns: str | None = None  # why later iterations have none, the same on all ranks
        self._said_later: str | None = None  # of a capture that stopped within `legs_running`
        self._in_legs = False
        self._complete: list[int] = []  # iterations of which all was recorded
        self._passes_complete = -1  # the iteration whose forward and backward were
        self.peak: Peak | None = None  # of the current iteration's real call, if legs will follow
        self.cost: Cost | None = Cost()  # until the first rerun
        self.measures_noise = False  # of noise legs numbers are kept, not values
        self._writer: Any = None
        self._devices: DeviceMemory | None = None
        self._specs: SpecCache | None = None
        self._selects_all = not settings.selection.patterns
        self._slots: dict[tuple[str, str, str, str], Slot] = {}  # by fqn, role, arg, pass
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._refused: set[str] = set()
        self._unsupported: set[str] = set()
        self._said: set[tuple[str, ...]] = set()
        # A child of fork has the parent's files open and must not touch them.
        os.register_at_fork(after_in_child=self._abandon)

    # Where the run is

    def next_iteration(self) -> None:
        """The one that ran is over, and all that was known of it alone goes."""
        self.now = self.now.following()

    @contextmanager
    def rerun(self, leg: str) -> Iterator[list[str]]:
        """Inside, the iteration runs again as this leg. Gives what fails in hooks meanwhile: that
        is the leg's end and not the capture's."""
        failures = self._hook_failures = []
        try:
            with self.now.rerun(leg):
                yield failures
        finally:
            self._hook_failures = None

    @property
    def iteration(self) -> int:
        return self.now.number

    @property
    def leg(self) -> str:
        return self.now.leg

    @property
    def moment(self) -> Moment | None:
        return self.now.moment

    @property
    def pass_(self) -> str:
        return self.now.pass_

    # Life

    def identify(self, rank: int) -> None:
        """Before anything can fail: messages name the rank."""
        self.rank = rank

    def start(
        self,
        rank: int,
        world_size: int,
        mesh: list[tuple[str, int]],
        coordinate: list[int],
        adapter: dict[str, Any],
        views: Sequence[tuple[list[tuple[str, int]], list[int]]] = (),
    ) -> None:
        """Opens the rank's trace. `adapter` is kept verbatim in meta.json.

        `views`: other grids of the same ranks, each with this rank's coordinate, whose dimensions
        placements may name.
        """
        self.rank = rank
        measures = self.settings.mode == "full" and not self.settings.keep_values
        self.measures_noise = measures
        self._writer = _native.Writer(
            self.settings.out,
            rank,
            world_size,
            mesh,
            coordinate,
            json.dumps(adapter),
            self.settings.run_id,
            list(views),
            mode=self.settings.mode,
            measured_legs=list(self.settings.legs) if measures else None,
            reference=self._compared_with() if measures else None,
            on_thread=self.settings.writer_thread,
        )
        self._specs = SpecCache(self._writer, self._refuse)
        self._devices = DeviceMemory(
            self._writer, self.settings.cuda_driver, lambda text: self.note("notice", text=text)
        )
        atexit.register(self._at_exit)

    def _compared_with(self) -> str | None:
        """The reference whose function this run computes: reruns may be compared with it here."""
        both = self.settings.graft_what >= {"weights", "data"}
        return self.settings.graft if both else None

    @property
    def recording(self) -> bool:
        return self._writer is not None and not self.over

    @property
    def started(self) -> bool:
        return self._writer is not None

    @property
    def specs(self) -> SpecCache:
        assert self._specs is not None
        return self._specs

    def finish(self) -> None:
        """The last captured iteration is complete."""
        self._close(True, "")

    def stop(self, reason: str | BaseException) -> None:
        """Gives up. Training goes on; called any number of times, from anywhere."""
        if self.over or os.getpid() != self._process:
            return
        if isinstance(reason, BaseException):
            reason = f"{type(reason).__name__}: {reason}"
        reason = " ".join(str(reason).split())
        self.stopped = f"its capture stopped: {reason}"
        if self._writer is None:
            process_messages.leave(self.settings.out, "refused", text=reason)
        else:
            try:
                self._writer.note("stopped", json.dumps({"reason": reason}))
            except Exception:
                pass  # The writer is what failed, most likely: the message below says it.
        self._close(False, reason)
        self._say_stopped(reason)

    def end(self, reason: str) -> None:
        """Closes the trace of a run that ends. What is said about it is the caller's."""
        if self._lock.acquire(timeout=1):
            try:
                self.note("stopped", reason=reason)
                self._close(False, reason)
            finally:
                self._lock.release()

    def _say_stopped(self, reason: str) -> None:
        if self._in_legs:
            # Whether training continues is not known before everything is put back.
            self._said_later = reason
            return
        sys.stderr.write(
            f"ttrace: rank {self.rank}: capture stopped: {reason}; training continues\n"
        )
        sys.stderr.flush()

    @contextmanager
    def legs_running(self) -> Iterator[None]:
        """Inside, nothing is said to continue."""
        self._in_legs = True
        try:
            yield
        finally:
            self._in_legs = False
            reason, self._said_later = self._said_later, None
            if reason is not None:
                self._say_stopped(reason)

    def kept(self) -> str:
        """One sentence on what the trace has of the run as it was."""
        parts = [f"iteration {iteration}" for iteration in self._complete]
        if self._passes_complete >= 0 and self._passes_complete not in self._complete:
            parts.append(f"the forward and backward passes of iteration {self._passes_complete}")
        return f"The trace has {' and '.join(parts)}." if parts else "The trace has no iteration."

    def _close(self, complete: bool, reason: str) -> None:
        with self._lock:
            writer, self.over = self._writer, True
            if writer is None:
                return
            self._writer = None
            try:
                writer.close(complete, reason)
            except Exception as error:
                if complete:
                    self._say_stopped(str(error))

    def _at_exit(self) -> None:
        if self.recording and os.getpid() == self._process:
            last = self.settings.iterations[-1]
            reason = f"the process ended before iteration {last} was complete"
            error = process_messages.uncaught_exception()
            self._close(False, f"{reason}: {error}" if error else reason)

    def _abandon(self) -> None:
        self.over = True
        self._leaked = self._writer  # Kept: closing it would write to the parent's files.
        self._writer = None

    # Errors

    def guarded(self, function: _Function) -> _Function:
        """Wraps a hook so that nothing it raises reaches the user's program. During a leg other
        than the first, the leg fails, not the capture."""

        # Without functools.wraps: it takes longer than a small record, for each gradient's hook.
        def guard(*args: Any, **kwargs: Any) -> Any:
            if self.over:
                return None
            try:
                if self._graph_is_captured():
                    return None
                if not torch.is_grad_enabled():  # as in a backward
                    return function(*args, **kwargs)
                with torch.no_grad():
                    return function(*args, **kwargs)
            except Exception as error:
                self.hook_failed(error)
                return None

        return guard  # type: ignore[return-value]

    @contextmanager
    def around(self, make: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        """A context of this tool around a call of the user's: nothing that it raises gets out, and
        the call runs with it or without. Gives the context's value, or None."""
        entered = value = None
        if not self.over:
            try:
                context = make()
                value = context.__enter__()
                entered = context
            except Exception as error:
                self.hook_failed(error)
        try:
            yield value
        finally:
            if entered is not None:
                try:
                    entered.__exit__(None, None, None)
                except Exception as error:
                    self.hook_failed(error)

    def hook_failed(self, error: Exception) -> None:
        if self._hook_failures is None or isinstance(error, OSError):
            self.stop(error)
        else:
            self._hook_failures.append(f"{type(error).__name__}: {error}")

    def _graph_is_captured(self) -> bool:
        """Whether what runs now becomes part of a CUDA graph. Reading a value would end that, and
        no hook runs when the graph does."""
        if not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing():
            return False
        self.unsupported(*CUDA_GRAPHS)
        return True

    # Writing

    def unsupported(self, what: str, reason: str, way_out: str) -> None:
        """Says once what of the run cannot be judged."""
        if self.recording and what not in self._unsupported:
            self._unsupported.add(what)
            self.note("unsupported", what=what, reason=reason, way_out=way_out)

    def has_seen(self, what: str) -> bool:
        """Whether that was said of something unsupported."""
        return what in self._unsupported

    def once(self, *what: str) -> bool:
        """True the first time that it is asked of this."""
        first = what not in self._said
        self._said.add(what)
        return first

    def not_recorded(self, fqn: str, role: str, arg: str, reason: str) -> None:
        """Once for each tensor."""
        if self.recording and self.once("not_recorded", fqn, role, arg):
            self.note("not_recorded", fqn=fqn, role=role, arg=arg, reason=reason)

    def selected(self, fqn: str, role: str, micro_batch: int) -> bool:
        """Whether the user's selection keeps such a tensor."""
        keeps = self.settings.selection.keeps
        return keeps(fqn=fqn, role=role, rank=self.rank, micro_batch=micro_batch)

    def note(self, kind: str, /, **values: Any) -> None:
        if self.recording:
            with self._lock:
                self._writer.note(kind, json.dumps(values))

    def _refuse(self, fqn: str, reason: str) -> None:
        if fqn not in self._refused:
            self._refused.add(fqn)
            self.note("not_observed", **{"fqn": fqn, "class": "", "reason": reason})

    def seal(self, iteration: int, leg: str) -> None:
        if self.recording:
            with self._lock:
                self._writer.seal(iteration, leg)
            if leg == self.settings.leg:
                self._complete.append(iteration)

    def flush(self) -> None:
        """All that was recorded and sealed is in the files, where other ranks may read it."""
        if self.recording:
            with self._lock:
                self._writer.flush()

    def scales_message(self) -> bytes:
        """What other ranks have to know of the parts of tensors that were recorded here. They have
        to be flushed."""
        with self._lock:
            return self._writer.scales_message()

    def learn_scales(self, answer: bytes) -> None:
        """Takes what _native.add_up_scales made of the messages of all ranks."""
        with self._lock:
            self._writer.learn_scales(answer)

    def passes_complete(self, iteration: int) -> None:
        """All of the real leg is in the files but what the optimizer's step shows. Whatever happens
        to the process in a rerun, this much can be judged, and a rerun can read it."""
        self.note("passes_complete", iteration=iteration)
        self.flush()
        if self.recording:
            self._passes_complete = iteration

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
        always: bool = False,
    ) -> None:
        """Writes one tensor, whose dimensions are in canonical order, of the current leg.

        `box`: what part it is of what the placements but RaggedShard give this rank.

        `always`: not subject to the user's selection, because grafting needs it.
        """
        if not self.recording:
            return
        if not always and not self.selected(fqn, role, micro_batch):
            return
        if tensor.layout is torch.sparse_coo:
            tensor = tensor.detach().cpu().to_dense()  # on the host: it is as large as a parameter
        if tensor.layout is not torch.strided:
            self._refuse(fqn, f"{role} {arg}: layout {tensor.layout}")
            return
        if not has_memory(tensor):
            self.not_recorded(fqn, role, arg, NO_MEMORY)
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
        )
        if spec is None:
            return
        values = _needs_values(placements, scale, routed)
        self._count(role, micro_batch, *sizes(tensor), values)
        with self._lock:
            if self._writer is None:
                return
            taken = self._writer.append(
                spec,
                self.leg,
                iteration,
                call,
                pass_,
                micro_batch,
                row_begin,
                tensor.data_ptr(),
                tensor.stride(),
                where,
            )
        if not taken:
            self._in_graph(fqn, role, arg)

    def _readable(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Where | None]:
        """The same values as the writer can take them, and where, if not from this process's
        memory. A device computes them perhaps later, and nothing waits for that."""
        assert self._devices is not None
        where = None if tensor.is_cpu else self._devices.where(tensor)
        return (host_view(tensor), None) if where is None else (plain(tensor.detach()), where)

    def _in_graph(self, fqn: str, role: str, arg: str) -> None:
        self.unsupported(*CUDA_GRAPHS)
        self.not_recorded(fqn, role, arg, "its stream was captured into a CUDA graph")

    def _count(
        self, role: str, micro_batch: int, size: int, fp32_size: int, needs_values: bool
    ) -> None:
        if role == "grad_output" and self.peak is not None:
            self.peak.sample(micro_batch)
        if role == "input" and self.leg == self.settings.leg:
            self.now.count_input(size)
        if self.cost is not None:
            self.cost.add(role, size, fp32_size, needs_values)

    def record_at(self, place: Place, tensor: torch.Tensor) -> None:
        """Writes an activation or its gradient, as its rule says."""
        if place.pass_ == "recompute" and self.now.recomputes_again:
            return
        if self._in_slot(place, tensor):
            return
        rule = place.rule
        self.record(
            place.fqn,
            place.role,
            place.arg,
            rule.canonical(tensor),
            place.placements,
            iteration=place.moment.iteration,
            pass_=place.pass_,
            call=place.call,
            micro_batch=place.moment.micro_batch,
            row_begin=place.row_begin,
            batch_dim=rule.batch_dim,
            batch_global=place.global_rows,
            scale=_scale_at(place),
            reduced_over=_reduced_over(place),
            routed=None if rule.routed is None else rule.routed.rows,
            always=rule.decides,  # other rows lie where it says
        )

    def _in_slot(self, place: Place, tensor: torch.Tensor) -> bool:
        """Writes the tensor by what is prepared for its place. False: it is to be written as any
        other."""
        moment, _, fqn, role, arg, call, pass_ = place
        if not self.recording or not self._selects_all or not may_have_slot(tensor):
            return False
        if not has_memory(tensor):
            return False
        slot = self._slots.get((fqn, role, arg, pass_))
        if slot is None or not slot.fits(place, tensor):
            spec = self.spec_at(place, place.rule.canonical(tensor))
            if spec is None:
                return False
            values = _needs_values(place.placements, _scale_at(place), place.rule.routed)
            slot = self._slots[fqn, role, arg, pass_] = Slot(place, tensor, spec, values)
        micro_batch = moment.micro_batch
        self._count(role, micro_batch, slot.bytes, slot.fp32_bytes, slot.needs_values)
        where, taken = None, True
        if not tensor.is_cpu:
            tensor, where = self._readable(tensor)
        with self._lock:
            if self._writer is not None:
                taken = self._writer.append(
                    slot.spec,
                    self.leg,
                    moment.iteration,
                    call,
                    pass_,
                    micro_batch,
                    place.row_begin,
                    tensor.data_ptr(),
                    slot.strides(tensor.stride()),
                    where,
                )
        if not taken:
            self._in_graph(fqn, role, arg)
        return True

    def perturb(
        self,
        spec: Any,
        row_begin: int,
        seed: int,
        name: str,
        value: torch.Tensor,
        noisy: torch.Tensor,
    ) -> bool:
        """Writes `value` with noise to `noisy`, with the help of the thread that writes. False:
        there is no writer any more."""
        with self._lock:
            if self._writer is None:
                return False
            self._writer.perturb(
                spec,
                row_begin,
                seed,
                name,
                value.data_ptr(),
                value.stride(),
                noisy.data_ptr(),
                noisy.stride(),
            )
        return True

    def spec_at(self, place: Place, canonical: torch.Tensor) -> Any | None:
        """The Spec of a tensor whose dimensions are in canonical order; None if its shape does not
        fit its rule."""
        return self.specs.get(
            place.fqn,
            place.role,
            place.arg,
            canonical,
            place.placements,
            batch_dim=place.rule.batch_dim,
            batch_global=place.global_rows,
            scale=_scale_at(place),
            reduced_over=_reduced_over(place),
            routed=None if place.rule.routed is None else place.rule.routed.rows,
        )


def _needs_values(placements: str, scale: Scale, routed: object) -> bool:
    """Whether noise legs keep them, however large the tensor (src/measure/leg_reducer.h)."""
    return "Partial" in placements or scale[0] != scale[1] or routed is not None


def _scale_at(place: Place) -> Scale:
    return place.moment.batch.grad_scale if place.pass_ == "backward" else (1, 1)


def _reduced_over(place: Place) -> tuple[str, ...]:
    rule = place.rule
    return rule.grad_reduced_over if place.pass_ == "backward" else rule.reduced_over
