"""The steps of a loop's optimizers, which end its iterations.

Gradients are complete when they are clipped, unscaled or stepped, whichever comes first. An
iteration is over when all optimizers have stepped, or one of them is about to step again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ttrace.adapters.torch import model_notes
from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.backward import LossBackward
from ttrace.adapters.torch.clearing import Clearing
from ttrace.adapters.torch.clipping import Clipping
from ttrace.adapters.torch.comm_hook import note_comm_hook
from ttrace.adapters.torch.instruments import Instrumentation
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.loss_scale import LossScale, parameters_of
from ttrace.adapters.torch.repeat.repetition import Repetition
from ttrace.adapters.torch.step_hooks import StepHooks
from ttrace.adapters.torch.store import Store
from ttrace.capture import hyperparameters, source_lines
from ttrace.capture.course import Course
from ttrace.capture.patches import Patches

_SEVERAL_EVALUATIONS = (
    "a step of the optimizer calls its closure several times: only the first is recorded"
)

# What, why, way out.
_SELDOM = (
    "optimizers that do not all step in each iteration",
    "where one ends is not known: what the loop computed before a step that comes again is taken"
    " for a part of the iteration of the step before",
    "compare a run in which all step equally often",
)


class Steps:
    """Of all optimizers of one loop."""

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        optimizers: Sequence[Any],
        patches: Patches,
        instrumentation: Instrumentation,
        course: Course,
        repetition: Repetition,
        backward: LossBackward,
        iteration_over: Callable[[], None],
    ) -> None:
        """`iteration_over()` is called when an iteration is, and its gradients were given out."""
        self._session = session
        self._model = model
        self._optimizers = optimizers
        self._instrumentation = instrumentation
        self._course = course
        self._repetition = repetition
        self._backward = backward
        self._iteration_over = iteration_over
        Clipping(session, patches, self._clipping, self._clipped, course.norm)
        Clearing(session, patches, model, optimizers, lambda: self._store, self._given_up)
        self._scaler = LossScale(session, patches, optimizers, self._before_step, self._overflowed)
        guarded = session.guarded
        self._hooks = StepHooks(
            optimizers,
            guarded(self._step_runs),
            guarded(self._step_ran),
            guarded(self._before_closure),
            guarded(self._before_closure_again),
        )

    def come_last(self) -> None:
        """Behind hooks that the loop has added to its optimizers."""
        self._hooks.come_last()

    def stop(self) -> None:
        self._hooks.stop()

    @property
    def _store(self) -> Store | None:
        instruments = self._instrumentation.current
        return None if instruments is None else instruments.store

    # Gradients

    def backward_over(self) -> None:
        self._session.now.clipping.backward_over()
        if self._session.due and self._store is not None:
            self._store.backward_over()

    def _clipping(self, of: Iterable[torch.Tensor] | None) -> Store | None:
        """Complete, or so it seems, are those that are clipped."""
        several = len(self._optimizers) > 1
        store = self._give_out(of if several else None, None)
        if store is not None and not several:
            self._repetition.clips()
        return store

    def _clipped(self) -> None:
        if self._store is not None:
            self._store.changed_knowingly()

    def _gradients_complete(self, optimizer: Any = None) -> None:
        """Those that it steps are. None: those of all."""
        several = optimizer is not None and len(self._optimizers) > 1
        store = self._give_out(parameters_of(optimizer) if several else None, optimizer)
        if store is not None and len(self._optimizers) == 1:
            self._repetition.run()

    def _give_out(self, of: Iterable[torch.Tensor] | None, optimizer: Any) -> Store | None:
        session, store = self._session, self._store
        if not session.due or store is None:
            return None
        if of is not None:
            of = list(of)
        unscaled = self._scaler.unscaled(optimizer)
        self._repetition.gives_out(of, unscaled)
        with self._repetition.unseen():
            store.select(of, unscaled)
            if self._model.ddps and session.once("comm hook"):
                for ddp in self._model.ddps:
                    note_comm_hook(session, ddp)
            self._course.backward_done()
            self._course.record_reduced()
        return store

    # A step

    def _before_closure(self, optimizer: Any) -> None:
        """Forwards and backwards follow, within the step."""
        steps = self._session.now.steps
        steps.evaluate(again=False)
        if steps.has(optimizer):
            self._end_iteration()  # the others take no step in this iteration

    def _before_closure_again(self, optimizer: Any) -> None:
        """A line search: what it evaluates is at other weights, and leads to what the step does, of
        which no gradient that was recorded says anything."""
        session = self._session
        session.now.steps.evaluate(again=True)
        session.now.micro_batches.forget_last()
        if session.due and session.once(_SEVERAL_EVALUATIONS):
            session.note("notice", text=_SEVERAL_EVALUATIONS)

    def _step_runs(self, optimizer: Any) -> None:
        self._before_step(optimizer)
        self._repetition.step_runs(optimizer)

    def _step_ran(self, optimizer: Any) -> None:
        self._repetition.step_ran()
        self._after_step(optimizer)

    def _before_step(self, optimizer: Any) -> None:
        self._step_begins(optimizer, called=True)

    def _given_up(self, optimizer: Any) -> None:
        """The loop clears its gradients in the place of a step."""
        self._step_begins(optimizer, called=False)
        self._skipped(optimizer, "were cleared without a step", cleared=True)

    def _overflowed(self, optimizer: Any) -> None:
        self._skipped(optimizer, "overflowed", cleared=False)

    def _step_begins(self, optimizer: Any, called: bool) -> None:
        iteration = self._session.now
        iteration.steps.approach(repeats=iteration.is_empty)
        if iteration.steps.repeats:
            self._note_second_step()
            return
        if iteration.steps.has(optimizer):
            if self._session.due and self._session.started:
                self._session.unsupported(*_SELDOM)
            self._end_iteration()
        self._gradients_complete(optimizer)
        is_last = iteration.steps.count == len(self._optimizers) - 1
        self._repetition.step_begins(optimizer, is_last, self._backward.is_running)
        self._course.step_begins(lambda: self._note_step(optimizer, called))
        self._session.now.steps.begin()

    def _note_second_step(self) -> None:
        """What it does is found when the next iteration begins."""
        session = self._session
        if session.due and session.started:
            session.note("second_step", iteration=session.iteration - 1)

    def _note_step(self, optimizer: torch.optim.Optimizer, called: bool) -> None:
        session, store = self._session, self._store
        iteration = session.now
        if not iteration.steps.note(optimizer):
            return
        if called:
            source_lines.note_caller(session, "step")
        names = self._model.parameter_names()
        of_step: dict[str, Any] = iteration.clipping.of_step()
        if iteration.gradients.changed_early:
            of_step[hyperparameters.CHANGED_EARLY] = True
        changed = store is not None and store.changed_otherwise()
        if iteration.gradients.given_out_early:
            changed = of_step[hyperparameters.INCOMPLETE] = True
        if changed or not iteration.clipping.is_one_fact:
            of_step[hyperparameters.UNKNOWN_CHANGE] = True
        hyperparameters.note_step(
            session,
            session.iteration,
            [(optimizer, of_step)],
            lambda parameter: names.get(id(parameter)),
        )
        none = [names.get(id(p)) for p in parameters_of(optimizer) if p.grad is None]
        hyperparameters.note_no_gradient(
            session, session.iteration, [name for name in none if name is not None]
        )

    def _after_step(self, optimizer: Any) -> None:
        iteration = self._session.now
        repeats = iteration.steps.repeats
        iteration.steps.end(optimizer)
        if repeats:
            iteration.drop_gradients()  # what was made for it is no part of the next iteration
            return
        iteration.micro_batches.end_part()
        iteration.clipping.step_over()
        if self._store is not None:
            self._store.step_over(parameters_of(optimizer))
        self._scaler.stepped(optimizer)
        if iteration.steps.count == len(self._optimizers):
            self._end_iteration()

    def _skipped(self, optimizer: Any, why: str, cleared: bool) -> None:
        """The loop came to the end of an iteration, and the optimizer did nothing."""
        if self._session.due and self._session.recording:
            self._course.skipped(f"the gradients {why}", cleared)
        self._after_step(optimizer)

    def _end_iteration(self) -> None:
        session = self._session
        if session.due and session.now.evaluated and not session.now.has_forward:
            model_notes.refuse_evaluation(session)
        self._gradients_complete()
        self._iteration_over()
