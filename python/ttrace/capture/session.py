"""The capture of one rank: its writer, where in the run it is, and how it gives up.

Whatever goes wrong in capture is this tool's problem and not the training's: the first failure
turns capture off with one line on stderr, and the trace says that it is incomplete.
"""

from __future__ import annotations

import atexit
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

from ttrace import _native
from ttrace.capture import process_messages
from ttrace.capture.forks import abandon_in_child
from ttrace.capture.guard import Guard
from ttrace.capture.iteration import Iteration
from ttrace.capture.notices import Notices
from ttrace.capture.placed import Moment
from ttrace.capture.recorder import CUDA_GRAPHS, Recorder, record_of
from ttrace.capture.rerun_cost import RerunCost
from ttrace.capture.rewrite import Place
from ttrace.capture.settings import Settings
from ttrace.capture.specs import SpecCache
from ttrace.capture.trace_writer import TraceWriter

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Session:
    """States: not started, recording, over (finished or failed). Never goes back."""

    def __init__(self, settings: Settings, first: Iteration | None = None) -> None:
        """`first`: the iteration that capture begins in; without one, it has yet to begin."""
        _native.throw_on_failed_checks()  # a bug of ours must not end the user's process
        self.settings = settings
        self.rank = 0
        self.now = first or Iteration(-1, settings.leg)
        self.cost = RerunCost()
        self.stopped: str | None = None  # why capture is off, in words for the other ranks
        self.no_reruns: str | None = None  # why later iterations have none, the same on all ranks
        self.over = False
        self._in_legs = False
        self._stopped_in_legs: str | None = None  # what is told when they are over
        self._complete: list[int] = []  # iterations of which all was recorded
        self._passes_complete = -1  # the iteration whose forward and backward were
        self._visits: Counter[int] = Counter()
        self._when_over: list[Callable[[], None]] = []
        self.writer = TraceWriter()
        self._recorder: Recorder | None = None
        self._notices = Notices(self.note)
        self._guard = Guard(lambda: self.over, self.stop, self._graph_is_captured)
        abandon_in_child(self)

    # Where the run is

    def next_iteration(self) -> None:
        """The one that ran is over, and all that was known of it alone goes."""
        self.now = self.now.following()
        process_messages.ran(self.settings.out, self.iteration)

    @contextmanager
    def rerun(self, leg: str) -> Iterator[list[str]]:
        """Inside, the iteration runs again as this leg. Gives what fails in hooks meanwhile: that
        is the leg's end and not the capture's."""
        with self._guard.rerun() as failures, self.now.rerun(leg):
            yield failures

    def refuse_reruns(self, reason: str) -> None:
        """Of all later iterations."""
        self.no_reruns = reason

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
        measures = self.measures_noise
        native = self.writer.open(
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
        self._recorder = Recorder(
            self.settings, self.writer, native, self._notices, self.cost, lambda: self.now
        )
        atexit.register(self._at_exit)

    @property
    def measures_noise(self) -> bool:
        """Whether of noise legs numbers are kept, not values."""
        return self.settings.mode == "full" and not self.settings.keep_values

    def _compared_with(self) -> str | None:
        """The reference whose function this run computes: reruns may be compared with it here."""
        both = self.settings.graft_what >= {"weights", "data"}
        return self.settings.graft if both else None

    @property
    def recording(self) -> bool:
        return self.writer.is_open and not self.over

    @property
    def started(self) -> bool:
        return self.writer.is_open

    @property
    def specs(self) -> SpecCache:
        assert self._recorder is not None
        return self._recorder.specs

    def visit(self) -> int:
        """How often this run came to the current iteration. A loop may repeat one, on all ranks
        alike, and what ranks tell each other the first time is no answer to the second."""
        self._visits[self.iteration] += 1
        return self._visits[self.iteration]

    def when_over(self, remove: Callable[[], None]) -> None:
        """To be called once capture is, for whichever reason: by now nothing of it is needed, and
        nothing of it should remain. Not if the process ends."""
        self._when_over.append(remove)

    def finish(self) -> None:
        """The last captured iteration is complete."""
        self._close(True, "")
        self._remove()

    def leave(self, reason: str) -> None:
        """Ends capture before that, because who asked for it wants no more."""
        if self.over or not self.writer.is_of_this_process:
            return
        if self.settings.iterations[-1] in self._complete:
            self.finish()
        else:
            self._close(False, reason)
            self._remove()

    def stop(self, reason: str | BaseException) -> None:
        """Gives up. Training goes on; called any number of times, from anywhere."""
        if self.over or not self.writer.is_of_this_process:
            return
        if isinstance(reason, BaseException):
            reason = f"{type(reason).__name__}: {reason}"
        reason = " ".join(str(reason).split())
        self.stopped = f"its capture stopped: {reason}"
        if not self.writer.is_open:
            process_messages.leave(self.settings.out, "refused", text=reason)
        else:
            try:
                self.writer.note("stopped", {"reason": reason})
            except Exception:
                pass  # The writer is what failed, most likely: the message below says it.
        self._close(False, reason)
        self._tell_stopped(reason)
        self._remove()

    def _remove(self) -> None:
        if self._in_legs:
            return  # what they have changed is put back first
        while self._when_over:
            try:
                self._when_over.pop()()
            except Exception as error:
                sys.stderr.write(f"ttrace: rank {self.rank}: something of capture stays: {error}\n")

    def end(self, reason: str) -> None:
        """Closes the trace of a run that ends. What is said about it is the caller's."""
        if self.writer.try_lock(seconds=1):
            try:
                self.note("stopped", reason=reason)
                self._close(False, reason)
            finally:
                self.writer.unlock()

    def _tell_stopped(self, reason: str) -> None:
        if self._in_legs:
            # Whether training continues is not known before everything is put back.
            self._stopped_in_legs = reason
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
            reason, self._stopped_in_legs = self._stopped_in_legs, None
            if reason is not None:
                self._tell_stopped(reason)
            if self.over:
                self._remove()

    def kept(self) -> str:
        """One sentence on what the trace has of the run as it was."""
        parts = [f"iteration {iteration}" for iteration in self._complete]
        if self._passes_complete >= 0 and self._passes_complete not in self._complete:
            parts.append(f"the forward and backward passes of iteration {self._passes_complete}")
        return f"The trace has {' and '.join(parts)}." if parts else "The trace has no iteration."

    def _close(self, complete: bool, reason: str) -> None:
        self.over = True
        try:
            self.writer.close(complete, reason)
        except Exception as error:
            if complete:
                self._tell_stopped(str(error))
        # The last that holds the native writer: with it, its thread and open files go.
        self._recorder = None
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if self.recording and self.writer.is_of_this_process:
            last = self.settings.iterations[-1]
            reason = f"the process ended before iteration {last} was complete"
            error = process_messages.uncaught_exception()
            self._close(False, f"{reason}: {error}" if error else reason)

    def abandon(self) -> None:
        """In a child of fork, whose writer has let go of the parent's files."""
        self.over = True

    # Errors

    def guarded(self, function: _Function) -> _Function:
        """Wraps a hook so that nothing it raises reaches the user's program. During a leg other
        than the first, the leg fails, not the capture."""
        return self._guard.guarded(function)

    def around(
        self, make: Callable[[], AbstractContextManager[Any]]
    ) -> AbstractContextManager[Any]:
        """A context of this tool around a call of the user's: see Guard.around."""
        return self._guard.around(make)

    def _graph_is_captured(self) -> None:
        self.unsupported(*CUDA_GRAPHS)

    # Writing

    def note(self, kind: str, /, **values: Any) -> None:
        if self.recording:
            self.writer.note(kind, values)

    def unsupported(self, what: str, reason: str, way_out: str) -> None:
        """Notes once what of the run cannot be judged."""
        if self.recording:
            self._notices.unsupported(what, reason, way_out)

    def has_seen(self, what: str) -> bool:
        """Whether that was noted as unsupported."""
        return self._notices.has_seen(what)

    def once(self, *what: str) -> bool:
        """True the first time that it is asked of this."""
        return self._notices.once(*what)

    def not_recorded(self, fqn: str, role: str, arg: str, reason: str) -> None:
        """Once for each tensor."""
        if self.recording:
            self._notices.not_recorded(fqn, role, arg, reason)

    def selected(self, fqn: str, role: str, micro_batch: int) -> bool:
        """Whether the user's selection keeps such a tensor."""
        keeps = self.settings.selection.keeps
        return keeps(fqn=fqn, role=role, rank=self.rank, micro_batch=micro_batch)

    def seal(self, iteration: int, leg: str) -> None:
        if self.recording:
            self.writer.seal(iteration, leg)
            if leg == self.settings.leg:
                self._complete.append(iteration)

    def flush(self) -> None:
        """All that was recorded and sealed is in the files, where other ranks may read it."""
        self.writer.flush()

    def scales_message(self) -> bytes:
        """What other ranks have to know of the parts of tensors that were recorded here. They have
        to be flushed."""
        return self.writer.scales_message()

    def learn_scales(self, answer: bytes) -> None:
        """Takes what _native.add_up_scales made of the messages of all ranks."""
        self.writer.learn_scales(answer)

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
        always: bool = False,
        **where: Any,
    ) -> None:
        """Writes one tensor of the current leg, see Recorder.record. `always`: not subject to the
        user's selection, because grafting needs it."""
        recorder = self._recorder
        if recorder is None or not self.recording:
            return
        if always or self.selected(fqn, role, where.get("micro_batch", -1)):
            recorder.record(fqn, role, arg, tensor, placements, **where)

    def amend(self, *record: Any, **where: Any) -> None:
        """More is known of a record that is held, see Recorder.amend."""
        if self._recorder is not None and self.recording:
            self._recorder.amend(*record, **where)

    def record_at(self, place: Place, tensor: torch.Tensor) -> None:
        """Writes an activation or its gradient, as its rule says."""
        recorder = self._recorder
        if recorder is None or not self.recording:
            return
        if place.pass_ == "recompute" and self.now.recomputes_again:
            return
        rows, batch = self.batch_that_records_state(place.moment)
        if not recorder.record_in_slot(place, tensor, rows, batch):
            self.record(**record_of(place, tensor, rows), batch=batch)

    def batch_that_records_state(self, moment: Moment) -> tuple[int, int]:
        """How many rows the global batch has, and which it is of the iteration's."""
        return moment.batch.global_rows, 0

    def spec_at(self, place: Place, canonical: torch.Tensor) -> Any | None:
        """See Recorder.spec_at."""
        assert self._recorder is not None
        return self._recorder.spec_at(place, canonical, place.moment.batch.global_rows)

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
        capture has ended."""
        return self.writer.perturb(
            spec,
            row_begin,
            seed,
            name,
            value.data_ptr(),
            value.stride(),
            noisy.data_ptr(),
            noisy.stride(),
        )
