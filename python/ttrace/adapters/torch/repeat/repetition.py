"""Records each captured iteration of a loop as it happens, so that its legs can follow in the same
process: when its gradients are complete, and before the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.instruments import Instrumentation
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.repeat.ambient import Ambient, AutocastCaches
from ttrace.adapters.torch.repeat.calls_of_torch import CallsOfTorch
from ttrace.adapters.torch.repeat.gradient_starts import GradientStarts
from ttrace.adapters.torch.repeat.kept_tensors import kept_in
from ttrace.adapters.torch.repeat.needed import needed, takes_number
from ttrace.adapters.torch.repeat.reduction import joins, reduces
from ttrace.adapters.torch.repeat.replayer import LoopReplayer
from ttrace.adapters.torch.repeat.steps_between import StepsBetween
from ttrace.adapters.torch.repeat.swapped_parameters import can_have_gradient
from ttrace.adapters.torch.repeat.tape import Event, Kind, Tape
from ttrace.adapters.torch.repeat.whole_calls import WholeCalls
from ttrace.capture import rerun
from ttrace.capture.course import Course
from ttrace.capture.nested import tensors_in
from ttrace.capture.patches import Patches
from ttrace.capture.rerun import Reruns

_STEP_INSIDE = "an optimizer steps while a backward runs"
_JOIN = "within DistributedDataParallel.join a rank may have fewer iterations than others"
_CLIPS_BETWEEN = "the loop adds to gradients that it has clipped"
_NEVER_COMPLETE = "not all of the loop's optimizers have stepped"
_NUMBER = (
    "a number that the loop takes from a tensor (item) is a part of its loss: in reruns it is what"
    " it was, so that round-off in it is not measured"
)


class Repetition:
    """Of one loop. Does nothing if no legs are wanted, or each is to be a launch of its own."""

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        patches: Patches,
        instrumentation: Instrumentation,
        course: Course,
        passes_complete: Callable[[], None],
    ) -> None:
        """`passes_complete()` writes all that the iteration has brought so far."""
        self._session = session
        self._model = model
        self._instrumentation = instrumentation
        self._course = course
        self._passes_complete = passes_complete
        self._in_call = False  # of what a framework runs as the forward of its model
        settings = session.settings
        self.wanted = bool(settings.legs) and settings.leg == "real"
        if not self.wanted or settings.launch_per_leg:
            self.wanted = False
            return
        guarded = session.guarded
        self._calls = CallsOfTorch(patches, self._called, self._collective_called)
        self._between = StepsBetween(self._calls)
        self._whole = WholeCalls(self._model_called, self._model_returned, self._broken_off)
        self._begin_event, self._end_event = guarded(self._begin), guarded(self._end)
        self.watch_model()
        patches.wrap_call(torch, "clear_autocast_cache", AutocastCaches.cleared)

    def unseen(self) -> AbstractContextManager[None]:
        """Inside, calls of torch are none of the loop's."""
        return self._calls.apart() if self.wanted else nullcontext()

    def watch_model(self) -> None:
        """Whenever something has wrapped or compiled it."""
        if self.wanted:
            self._model.on_wrapped(self.watch_model)
            self._whole.watch(self._model.chain)

    def stop(self) -> None:
        if self.wanted:
            self._calls.end()
            self._whole.remove()

    # The iteration

    @property
    def _tape(self) -> Tape | None:
        return self._session.now.tape

    def _records(self) -> bool:
        session = self._session
        return (
            self.wanted
            and session.due
            and not session.over
            and session.no_reruns is None
            and session.leg == session.settings.leg
            and not session.now.repeated
        )

    def begin(self) -> None:
        """At the first forward, with all in place: what the legs begin with."""
        session, instruments = self._session, self._instrumentation.current
        if not self._records() or instruments is None:
            return
        if joins(self._model):
            instruments.launches.note_each(_JOIN)
            session.refuse_reruns(_JOIN)
            session.now.tape = None
            self._calls.end()
            return
        replayer = LoopReplayer(session, self._model, instruments, self._course)
        session.now.reruns = Reruns(
            session,
            instruments.hooks,
            replayer,
            session.iteration,
            instruments.launches.leg_factory(replayer.refusal, replayer.full_precision),
        )
        session.now.replayer = replayer

    def gives_out(self, of: Sequence[torch.Tensor] | None, unscaled: bool) -> None:
        """Gradients of these parameters, or of all, are about to be."""
        now = self._session.now
        if self._tape is not None and now.replayer is not None:
            now.replayer.brought(now.gradients.sums())
            self._tape.give_out(of, unscaled)

    def clips(self) -> None:
        """Gradients are complete, or so it seems. What is done to them until the step is no part of
        a rerun, which waits for the step: the loop may go on to add to them."""
        tape, now = self._tape, self._session.now
        if tape is None or now.replayer is None or now.repeated or now.left is not None:
            return
        self._calls.end()
        now.left = self._slots_left(tape)
        now.replayer.clips()

    def _goes_on(self) -> None:
        if self._tape is not None and self._session.now.left is not None:
            self._tape.give_up(_CLIPS_BETWEEN)

    def _slots_left(self, tape: Tape) -> list[int]:
        return tape.slots_of(leaf.grad for leaf in self._leaves(tape).values())

    def step_begins(self, optimizer: Any, is_last: bool, in_backward: bool) -> None:
        """Gradients are complete, of the parameters of this one. `is_last`: all others have
        stepped."""
        tape, replayer = self._tape, self._session.now.replayer
        if tape is None:
            return
        if in_backward:
            tape.give_up(_STEP_INSIDE)
        if is_last:
            self.run()
        elif replayer is not None:
            replayer.keep_parameters(optimizer)

    def step_runs(self, optimizer: Any) -> None:
        """Its own one, after hooks of the loop's."""
        tape, replayer = self._tape, self._session.now.replayer
        if tape is not None and replayer is not None:
            keeps_gradients = not replayer.is_trusted and reduces(self._model)
            self._between.begins(tape, optimizer, keeps_gradients)

    def step_ran(self) -> None:
        if self.wanted:
            self._between.over(self._tape)

    def iteration_over(self) -> None:
        """Whatever has happened in it."""
        tape = self._tape
        if tape is not None and not self._session.now.repeated:
            tape.give_up(_NEVER_COMPLETE)
            self.run()

    def run(self) -> None:
        """All legs, once an iteration. Every rank takes part in the first vote, whatever happened
        to its capture."""
        session, now = self._session, self._session.now
        if not self.wanted or now.repeated or not session.due:
            return
        now.repeated = True
        self._calls.end()
        if session.no_reruns is not None and now.reruns is None:
            return
        if now.reruns is None or now.replayer is None or now.tape is None:
            rerun.refuse(session)
            return
        session.guarded(self._passes_complete)()
        try:
            self._hand_over(now.tape, now.replayer)
            with now.replayer.parameters_as_before():
                now.reruns.run(session.settings.legs)
        except Exception as error:
            session.stop(error)
            rerun.refuse(session)
        finally:
            now.tape = now.reruns = now.replayer = None

    def _hand_over(self, tape: Tape, replayer: LoopReplayer) -> None:
        """What was recorded, to who makes it again."""
        session, leaves = self._session, self._leaves(tape)
        left = self._slots_left(tape) if session.now.left is None else session.now.left
        events = needed(tape.events, tape.memory, left)
        if session.recording and takes_number(events, tape.numbers) and session.once(_NUMBER):
            session.note("notice", text=_NUMBER)
        replayer.brought(session.now.gradients.sums())
        replayer.plays(tape, events, leaves)

    def _leaves(self, tape: Tape) -> dict[int, torch.Tensor]:
        """Also those that want none now: the loop may switch them off and on."""
        own = {id(p): p for p in self._model.root.parameters() if can_have_gradient(p)}
        return own | tape.leaves

    # Calls of the model

    def _model_called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        self._calls.leave()
        try:
            return self._begin_model(module, args, kwargs)
        except Exception as error:
            self._session.stop(error)
            return None

    def _begin_model(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        root = self._model.root_in(function)
        trains = torch.is_grad_enabled() if root is None else self._model.is_of_training(root)
        trains = trains and self._model.trains
        again = self._in_call or self._session.now.steps.evaluates_again
        if not trains or again or not self._records():
            return None
        self._goes_on()
        now = self._session.now
        if now.tape is None:
            self._between.over(None)  # one that an exception has ended
            own = (*self._model.root.parameters(), *self._model.root.buffers())
            now.tape = Tape(own, partial(kept_in, self._model.outside))
            now.gradient_starts = GradientStarts()
            self._calls.begin()
        ambient = Ambient.now().with_python()
        return self._begin_event(Kind.MODEL, "the model", function, args, kwargs, ambient)

    def _model_returned(self, begun: Any, output: Any) -> None:
        self._calls.come_back()
        self._end_event(begun, output)

    def _broken_off(self, begun: Any) -> None:
        self._calls.come_back()
        if begun is not None and self._tape is not None:
            self._tape.give_up("a forward of the model ended in an exception")

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a framework runs as the forward of its model."""
        if not self.wanted:
            return function(*args, **kwargs)
        begun = self._model_called(function, args, kwargs)
        self._in_call = True
        try:
            output = function(*args, **kwargs)
        except BaseException:
            self._broken_off(begun)
            raise
        finally:
            self._in_call = False
        self._model_returned(begun, output)
        return output

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Whether a call that was recorded did."""
        return self._tape is not None and self._tape.knows(tensor)

    # Calls of torch

    def _called(self, name: str, function: Any, args: Any, kwargs: Any, is_collective: bool) -> Any:
        tape = self._tape
        if tape is None or name == "backward" or tape.knows_without(name, function, args):
            return function(*args, **kwargs)
        ambient = self._ambient_if_concerned(args, kwargs)
        if ambient is None:
            return function(*args, **kwargs)
        kind = Kind.COLLECTIVE if is_collective else Kind.CALL
        begun = self._begin_event(kind, name, function, args, kwargs, ambient)
        result = function(*args, **kwargs)
        self._end_event(begun, result)
        return result

    def _collective_called(self) -> None:
        if self._tape is not None:
            self._tape.has_collectives = True

    def _ambient_if_concerned(self, args: Any, kwargs: Any) -> Ambient | None:
        """Not guarded as the rest, because that switches gradients off."""
        try:
            if self._tape is not None and self._tape.concerns(tensors_in((args, kwargs))):
                return Ambient.now()
        except Exception as error:
            self._session.stop(error)
        return None

    @contextmanager
    def backward(self, args: Any, kwargs: Any) -> Iterator[None]:
        """Around one."""
        tape, starts = self._tape, self._session.now.gradient_starts
        if tape is None or starts is None or not self._records():
            yield
            return
        self._goes_on()
        ambient = self._ambient_if_concerned(args, kwargs)
        with self._calls.apart():
            begun = self._begin_event(Kind.BACKWARD, "backward", _backward, args, kwargs, ambient)
            self._session.guarded(self._look_at_gradients)(begun)
            yield
            self._session.guarded(self._backward_ended)(begun)

    def _backward_ended(self, begun: Any) -> None:
        tape, now = self._tape, self._session.now
        if begun is None or tape is None:
            return
        if now.gradient_starts is not None:
            leaves = self._leaves(tape)
            tape.end_backward(begun[0], leaves)
            now.gradient_starts.left(leaves.items())

    def _look_at_gradients(self, begun: Any) -> None:
        tape, starts = self._tape, self._session.now.gradient_starts
        if begun is not None and tape is not None and starts is not None:
            event: Event = begun[0]
            event.reduces = reduces(self._model)
            event.starts, problem = starts.look(self._leaves(tape), tape.knows)
            event.problem = event.problem or problem

    def _begin(
        self, kind: Kind, name: str, function: Any, args: Any, kwargs: Any, ambient: Ambient | None
    ) -> Any:
        """Runs without gradients, as all that is guarded: what surrounds the call is given."""
        if self._tape is None or ambient is None:
            return None
        return self._tape.begin_call(kind, name, function, args, kwargs, ambient)

    def _end(self, begun: Any, result: Any) -> None:
        if begun is None or self._tape is None:
            return
        self._tape.end_call(*begun, result, tensors_in(result))


def _backward(*args: Any, **kwargs: Any) -> None:
    """By its name, which is wrapped: losses and gradients are recorded there."""
    torch.autograd.backward(*args, **kwargs)
