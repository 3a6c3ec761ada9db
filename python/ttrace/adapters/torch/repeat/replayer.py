"""Runs an iteration of a plain torch loop again, from what was recorded of it. See
capture/adapter.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import torch

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.instruments import Instruments
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.loss_scale import parameters_of
from ttrace.adapters.torch.repeat.full_precision import FullPrecision
from ttrace.adapters.torch.repeat.hooks_that_keep import HooksThatKeep
from ttrace.adapters.torch.repeat.kept_objects import is_kept_object
from ttrace.adapters.torch.repeat.kept_step import KeptStep
from ttrace.adapters.torch.repeat.play import NotTheSame, play
from ttrace.adapters.torch.repeat.reduction import (
    is_followed,
    reduce_as_before,
    reducing_nothing,
    sends_buffers,
)
from ttrace.adapters.torch.repeat.swapped_parameters import swapped_parameters
from ttrace.adapters.torch.repeat.tape import Event, Kind, Tape
from ttrace.adapters.torch.repeat.terms import Terms, digest_in
from ttrace.adapters.torch.repeat.unchanged import Unchanged
from ttrace.capture.course import Course
from ttrace.capture.legs import Leg, Refusal
from ttrace.capture.placed import ParameterRule
from ttrace.capture.settings import LegName
from ttrace.capture.state import GlobalState, Part, Watched

_NO_BACKWARD = "no backward of what its model has put out was seen"
_OWN_HOOK = (
    "a communication hook of the loop's own reduces gradients, which reruns in this process do not:"
    " reduced gradients are judged in the run as it was alone (--launch-per-leg judges them in"
    " reruns, too)"
)


class LoopReplayer:
    """For one iteration. Made before its first forward."""

    draws_all = False  # what leads to no gradient is not made again

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        instruments: Instruments,
        course: Course,
    ) -> None:
        self._session = session
        self._model = model
        self._instruments = instruments
        self._course = course
        self._events: Sequence[Event] = ()
        self._steps: Sequence[KeptStep] = ()  # among them
        self._leaves: Mapping[int, torch.Tensor] = {}
        self._has_collectives = True
        self._is_reduced = True  # as the step would find them, in the leg that runs
        self._problem: str | None = _NO_BACKWARD
        self._terms = Terms()  # of the real call
        self._again = Terms()  # the same, when it ran again
        self._earlier: list[tuple[torch.Tensor, torch.Tensor]] = []  # parameters, as they were
        self._own = list(model.root.named_parameters())
        self._changed: list[str] = []  # gradients that a rerun did not leave as the loop did
        self._left: dict[str, str] | None = None  # digests of those that the loop then clipped
        self._hooks = HooksThatKeep(model.root)
        self._unchanged = Unchanged(model.root.named_parameters())
        self._precision = FullPrecision(model)
        self.full_precision = self._precision.__call__

    def plays(
        self, tape: Tape, events: Sequence[Event], leaves: Mapping[int, torch.Tensor]
    ) -> None:
        """What is made again: these events of the tape."""
        self._events, self._leaves = events, leaves
        self._steps = [event.step for event in events if event.step is not None]
        self._has_collectives = tape.has_collectives
        problems = [tape.problem, *(event.problem for event in events), self._unchanged.problem()]
        problems.append(self._hooks.problem())
        self._problem = next(filter(None, problems), None)
        if self._problem is None and not any(e.kind is Kind.BACKWARD for e in events):
            self._problem = _NO_BACKWARD
        self._precision.look(events)

    def brought(self, sums: Mapping[str, torch.Tensor]) -> None:
        """By backwards of the loop's, and not given out: told whenever some are about to be, and at
        the end."""
        if not self.is_trusted:
            self._terms.add(sums)

    def clips(self) -> None:
        """The loop is about to change its gradients."""
        if not self.is_trusted:
            self._left = _digests({n: p.grad for n, p in self._own if p.grad is not None})

    # The state of the process

    @property
    def device(self) -> torch.device:
        parameter = next(iter(self._model.root.parameters()), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def watched(self) -> Iterator[Watched]:
        """Modules, and what they keep counts and statistics in: plain objects of theirs."""
        seen: set[int] = set()
        for name, module in self._model.root.named_modules():
            yield Watched(name or "the model", module)
            for key, value in vars(module).items():
                if is_kept_object(value) and id(value) not in seen:
                    seen.add(id(value))
                    yield Watched(f"{name or 'the model'}.{key}", value)

    def global_states(self) -> list[GlobalState]:
        return []

    def keep_parameters(self, optimizer: Any) -> None:
        """It is about to step, and other optimizers will after it."""
        self._unchanged.step_begins(parameters_of(optimizer))
        self._earlier += [(p, p.detach().clone()) for p in parameters_of(optimizer)]

    @contextmanager
    def parameters_as_before(self) -> Iterator[None]:
        """Inside, no optimizer has stepped yet."""
        later = [(parameter, parameter.detach().clone()) for parameter, _ in self._earlier]
        _set(self._earlier)
        try:
            yield
        finally:
            _set(later)

    def save_gradients(self) -> list[Part]:
        """The tensors themselves: a leg puts others in their place, if any."""
        return [
            Part("a gradient", partial(setattr, leaf, "grad", leaf.grad))
            for leaf in self._leaves.values()
        ]

    def clear_gradients(self) -> None:
        for leaf in self._leaves.values():
            leaf.grad = None

    def parameters(self) -> Iterable[tuple[str, torch.Tensor, ParameterRule, str]]:
        """None: the store's own hooks see every gradient, and rewrite it."""
        return ()

    # Whether it can be run

    def problem(self) -> str | None:
        return self._problem

    def sends(self) -> str:
        names = [event.name for event in self._events if event.kind is Kind.COLLECTIVE]
        return " ".join(f"{name} x {len(list(run))}" for name, run in groupby(names))

    def repeat(self, meet: Callable[[], None]) -> None:
        """As a leg; what it records is dropped."""
        self._again = Terms()
        with self._course.rerunning():
            self._play(self._compare, meet, self._set_apart, is_check=True)
        self._again.add(self._session.now.gradients.sums())
        self._session.drop()

    def _set_apart(self, of: Sequence[torch.Tensor] | None, unscaled: bool) -> None:
        """What a leg would record there."""
        gradients = self._session.now.gradients
        self._again.add(gradients.sums())
        self._instruments.store.select(of, unscaled)
        for _ in gradients.take_sums():
            pass

    def _compare(self) -> None:
        """What the loop has made of its gradients, while the model has the other parameters. Where
        DistributedDataParallel has reduced them the order of its sums is left open."""
        self._changed = []
        if any(event.reduces for event in self._events):
            return
        stepped = {id(p) for p, _ in self._earlier}  # and cleared since, most likely
        own = {name: p for name, p in self._own if id(p) not in stepped}
        left = self._left
        if left is None:
            left = _digests({name: p.grad for name, p in own.items() if p.grad is not None})
        made = _digests({n: g for n, g in self._instruments.store.gradients() if n in own})
        self._changed = [n for n in {**left, **made} if left.get(n) != made.get(n)]

    def differences(self) -> list[str]:
        return self._terms.differing(self._again) or self._changed

    def digest(self) -> str:
        return self._again.digest()

    def not_repeatable(self, reason: str) -> None:
        self._instruments.launches.note_each(reason)

    @property
    def fails_cleanly(self) -> bool:
        return not self._has_collectives

    @property
    def is_trusted(self) -> bool:
        return self._instruments.runs_again

    def repeatable(self) -> None:
        self._instruments.runs_again = True
        self._session.note("replayer", name="torch")

    def refusal(self, leg: str) -> Refusal | None:
        return self._precision.refusal() if LegName.parse(leg).fp32 else None

    def memory(self, leg: str) -> int:
        steps = sum(step.added_bytes() for step in self._steps)
        return steps + (self._precision.added_bytes() if LegName.parse(leg).fp32 else 0)

    # A leg

    def run(self, leg: Leg, meet: Callable[[], None]) -> None:
        session, instruments = self._session, self._instruments
        before, instruments.source = instruments.source, leg.source
        try:
            with self._course.rerunning():
                self._play(self._end, meet, self._give_out)
            session.release()
        finally:
            instruments.source = before

    def _give_out(self, of: Sequence[torch.Tensor] | None, unscaled: bool) -> None:
        """As the loop did there: later backwards may reach the same parameters."""
        self._instruments.store.select(of, unscaled)
        self._course.rerun_done(reduced=self._is_reduced)

    def _step(
        self, others: Mapping[int, torch.Tensor], is_check: bool, kept: KeptStep
    ) -> list[torch.Tensor]:
        """In a check, with the gradients of the run where the order of sums over ranks is open."""
        if not self._is_reduced:
            raise NotTheSame("a step before the last needs gradients whose reduction is not known")
        in_fp32 = self._precision.is_on
        stepped = kept.make(others, in_fp32=in_fp32, as_found=is_check)
        self._instruments.store.step_over(kept.parameters)
        return stepped

    def _end(self) -> None:
        """While the model has the parameters of the leg."""
        of_real_leg = self._session.now.of_real_leg.gradients
        self._instruments.store.select(None, unscaled=of_real_leg.reduced_scale == (1, 1))
        self._course.rerun_done(reduced=self._is_reduced)
        # Where they are sent, the next iteration finds nothing of what this rank has left.
        if self._session.topology.batch_part == 0 or not sends_buffers(self._model):
            self._instruments.store.record_buffers_left()

    def _reduce(self, meet: Callable[[], None]) -> None:
        if not is_followed(self._model):
            self._is_reduced = False
            session = self._session
            if self._model.ddps and session.recording and session.once(_OWN_HOOK):
                session.note("notice", text=_OWN_HOOK)
            return
        meet()
        leaves = self._instruments.store.leaves()
        self._is_reduced &= reduce_as_before(self._model, leaves)

    def _play(
        self,
        end: Callable[[], None],
        meet: Callable[[], None],
        give_out: Callable[[Sequence[torch.Tensor] | None, bool], None],
        is_check: bool = False,
    ) -> None:
        self._is_reduced = True
        in_fp32, store = self._precision.is_on, self._instruments.store
        stepped = {id(p) for step in self._steps for p in step.parameters}
        root = self._model.root
        with (
            swapped_parameters(root, in_fp32=in_fp32, stepped=stepped) as others,
            store.gradients_of(others),
            reducing_nothing(self._model) as alone,
        ):
            play(
                self._events,
                self._leaves,
                alone=alone,
                reduce=partial(self._reduce, meet),
                give_out=give_out,
                step=partial(self._step, others, is_check),
                autocast=not in_fp32,
                in_place_of=others,
            )
            end()


@torch.no_grad()
def _set(values: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, value in values:
        tensor.copy_(value)


def _digests(gradients: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {fqn: digest_in(gradients, fqn) for fqn in gradients}
