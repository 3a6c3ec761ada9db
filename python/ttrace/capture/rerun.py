"""Runs the legs of an iteration: the real call first and untouched, then the reruns, then
everything is put back, so that the user's loop notices nothing.

All ranks run the same legs: they vote before and after each, and whatever fails between two votes
is this rank's no at the next. What was not put back ends the run, on every rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from ttrace.capture.adapter import Replayer
from ttrace.capture.agreement import Agreement
from ttrace.capture.free_memory import free_memory
from ttrace.capture.legs import Leg, LegFactory, Refusal
from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName
from ttrace.capture.shared_scales import SharedScales
from ttrace.capture.state import Part, Snapshot, put_back, random_states
from ttrace.capture.watchdog import Watchdog

# The first vote of an iteration, which a rank without a capture refuses.
START = "start"
PUT_BACK = "put back"
# In place of a leg's name: the iteration runs again and nothing of it is recorded.
CHECK = "check"

# A rerun may do more than the real call (compile, copy, make noise) and meet a slower machine: what
# takes longer than this is stuck. The grace is for ranks that are still on their way to a failure
# of their own, or to the next vote.
_GRACE_SECONDS, _GRACE_CALLS = 30.0, 3
_LIMIT_SECONDS, _LIMIT_CALLS = 600.0, 30
_VOTE_SECONDS, _VOTE_CALLS = 120.0, 5
_NAMED = 3  # of what could not be put back


def refuse(session: Session) -> None:
    """For a rank that cannot take part: the others vote on their reruns without waiting for it."""
    try:
        reason = session.stopped or "its capture is off"
        Agreement.about(session).refuse(START, reason)
    except Exception:
        pass  # The others give up after a time.


class Reruns:
    """One captured iteration: `before` it, then `after` it."""

    def __init__(
        self,
        session: Session,
        hooks: ModuleHooks,
        replayer: Replayer,
        iteration: int,
        legs: LegFactory,
    ) -> None:
        self._session = session
        self._hooks = hooks
        self._replayer = replayer
        self._iteration = iteration
        self._legs = legs
        self._before = self._snapshot()
        self._trouble: str | None = None  # what failed since the last vote
        self._taken = 0
        self._runs = 0  # of the iteration again
        session.cost.watch(replayer.device)
        self._began = time.monotonic()

    def _snapshot(self) -> Snapshot:
        states = [*random_states(), *self._replayer.global_states()]
        return Snapshot(self._replayer.watched(), states)

    def run(self, legs: tuple[str, ...]) -> None:
        """To be called by every rank after the real call. Raises nothing of its own."""
        session, seconds = self._session, time.monotonic() - self._began
        limit = session.settings.leg_timeout or max(_LIMIT_SECONDS, _LIMIT_CALLS * seconds)
        grace = min(limit / 2, max(_GRACE_SECONDS, _GRACE_CALLS * seconds))
        self._patience = limit + grace
        self._first_patience = min(self._patience, max(_VOTE_SECONDS, _VOTE_CALLS * seconds))
        try:
            self._agreement = Agreement.about(session)
            self._scales = SharedScales(session, self._agreement, legs)
            self._watchdog = Watchdog(self._agreement, session, grace, limit)
            with session.legs_running(), self._watchdog:
                self._run(legs)
        except Exception as error:
            session.stop(error)
            self._agreement.refuse(START, _words(error))

    def _run(self, legs: tuple[str, ...]) -> None:
        if self._session.no_reruns is not None:
            self._skipped(legs, Refusal(self._session.no_reruns))
            return
        saved: list[tuple[list[Part], Snapshot]] = []
        self._watchdog.begins("saving the state of the real call")
        self._try(lambda: self._prepare(legs))
        self._try(lambda: saved.append((self._replayer.save_gradients(), self._snapshot())))
        against = self._vote(START)
        if against is not None:
            if self._agreement.silent:
                # Another iteration would wait for that rank as long again.
                self._session.refuse_reruns(against)
            self._skipped(legs, Refusal(against))
            self._try(self._scales.forget)
            return
        gradients, after = saved[0]
        try:
            self._try(self._scales.add_up)
            against = self._why_not_again()
            if against is not None:
                if self._replayer.is_trusted:
                    self._skipped(legs, Refusal(against))  # this iteration is not like the first
                else:
                    self._try(lambda: self._replayer.not_repeatable(against))
                    self._session.refuse_reruns("iterations are not run again in this process")
                legs = ()
            elif not self._replayer.is_trusted:
                self._replayer.repeatable()
            for position, name in enumerate(legs):
                if not self._run_leg(name, after):
                    self._skipped(legs[position + 1 :], Refusal("an earlier leg failed"))
                    break
        finally:
            self._put_back(gradients, after)
        self._wait_for_the_others()
        self._try(lambda: self._leaked("all", after))

    def _prepare(self, legs: tuple[str, ...]) -> None:
        # What other ranks may read must be in the files before the vote.
        self._session.note("legs", iteration=self._iteration, names=list(legs))
        self._session.passes_complete(self._iteration)
        self._taken = self._session.cost.memory_above_now()
        self._say_cost(legs)
        mine = ",".join(legs)
        others = self._agreement.differing("legs", mine)
        if others is not None:
            raise ValueError(f"TTRACE_LEGS is {mine!r} here and {others!r} on another rank")
        self._scales.tell(self._session.settings.leg)

    def _say_cost(self, legs: tuple[str, ...]) -> None:
        cost = self._session.cost.take()
        if cost is not None:
            possible = [leg for leg in legs if self._replayer.refusal(leg) is None]
            memory = {leg: self._needed(leg) for leg in possible}
            free = free_memory(self._replayer.device)
            cost.say(self._session.settings.out, memory, free, self._session.measures_noise)

    def _run_leg(self, name: str, after: Snapshot) -> bool:
        """False if legs must end here. A leg that is not possible is skipped, and others go on."""
        dog = self._watchdog
        if LegName.parse(name).isolated:
            # It reads what other ranks recorded in the legs before: their files must have it.
            against = self._vote(f"{name} has its values")
            if against is not None:
                self._skipped((name,), Refusal(against))
                return True
        made: list[Leg | Refusal] = []
        dog.begins(f"leg {name} of iteration {self._iteration}")
        self._try(lambda: made.append(self._make(name)))
        leg = made[0] if made else None
        refusal = leg if isinstance(leg, Refusal) else None
        failure = None
        with ExitStack() as inside:
            if isinstance(leg, Leg):
                # Before the vote: copies in fp32 are what memory runs out for.
                self._try(lambda: self._enter(leg, inside))
            against = self._vote(f"{name} begins", refusal and refusal.reason)
            if against is None:
                self._try(self._scales.learn)
                assert isinstance(leg, Leg)
                failure = self._rerun(name, lambda: self._replayer.run(leg, self._meet))
                if failure is not None:
                    dog.failed(failure)
                else:
                    self._try(lambda: self._told(name))
        if against is not None:
            self._skipped((name,), refusal or Refusal(against))
            return True
        against = self._vote(f"{name} ends", failure)
        if against is not None:
            self._skipped((name,), Refusal(against))
            return self._replayer.fails_cleanly
        self._try(self._scales.add_up)
        self._try(lambda: self._sealed(name, after))
        return True

    def _why_not_again(self) -> str | None:
        """Why the replayer does not make the same iteration, which the first one of a run shows.
        All ranks find the same."""
        against = self._vote("can run again", self._replayer.problem() or self._sends_otherwise())
        if against is not None or self._replayer.is_trusted:
            return against
        digests: list[str] = []
        differs = None
        for time_ in ("once", "twice"):
            failure = self._repeat(digests)
            differs = None if failure else _differing(self._replayer.differences())
            against = self._vote(f"ran again {time_}", failure)
            if against is not None:
                return against
            against = self._vote(f"was the same {time_}", differs)
            if against is None or self._replayer.device.type == "cpu":
                return against
        # What differs from itself as well is not made by the replayer, but by sums of a device
        # whose order is left open. On a CPU none is: what differs there is a state that is not put
        # back, and each further run would change it.
        own_way = digests[0] != digests[1]
        return self._vote("differs from itself", None if own_way else differs)

    def _sends_otherwise(self) -> str | None:
        """Ranks that do not call the same collectives would wait for each other for ever."""
        mine = self._replayer.sends()
        others = self._agreement.differing("sends", mine)
        if others is None:
            return None
        return (
            f"it calls other collectives ({mine or 'none'}) than another rank ({others or 'none'})"
        )

    def _repeat(self, digests: list[str]) -> str | None:
        """What went wrong, or None, and what it left in the gradients."""
        self._watchdog.begins(f"running iteration {self._iteration} again")
        failures = self._before.restore()
        if failures:
            return f"the state before the real call is lost: {_some(failures)}"
        failure = self._rerun(CHECK, lambda: self._replayer.repeat(self._meet))
        if failure is None:
            digests.append(self._replayer.digest())
        else:
            self._watchdog.failed(failure)
        return failure

    def _told(self, name: str) -> None:
        self._session.flush()
        self._scales.tell(name)

    def _sealed(self, name: str, after: Snapshot) -> None:
        self._session.seal(self._iteration, name)
        self._session.flush()
        if name == "replay":
            self._leaked(name, after)

    def _try(self, action: Callable[[], object]) -> None:
        """Out of memory, a full disk, a bug of ours: a no at the next vote and nothing else."""
        if self._trouble is None:
            try:
                action()
            except Exception as error:
                self._trouble = _words(error)
                if isinstance(error, OSError):
                    self._session.stop(error)  # the trace cannot be written any more

    def _vote(self, question: str, refusal: str | None = None) -> str | None:
        refusal = self._trouble or refusal
        self._trouble = None
        if refusal is None and not self._session.recording:
            refusal = self._session.stopped or "its capture is off"
        with self._watchdog.waiting():
            try:
                patience = self._first_patience if question == START else self._patience
                against = self._agreement.vote(question, refusal, patience)
            except Exception as error:
                return self._refused(question, error)
        if question != START:
            self._end_if_silent(question, against)
        return against

    def _end_if_silent(self, question: str, against: str | None) -> None:
        """A rank that was here for the first vote and does not come to another is stuck in capture
        itself: training would wait for it."""
        if self._agreement.silent:
            at = f"at the vote {question!r} of iteration {self._iteration}"
            self._watchdog.end(f"{against}, {at}")

    def _refused(self, question: str, error: Exception) -> str:
        """A vote that broke: the others should not wait for this rank."""
        reason = f"it cannot vote: {_words(error)}"
        try:
            self._agreement.refuse(question, reason)
        except Exception:
            pass  # Nobody to tell: the store went with the rank that kept it.
        return reason

    def _make(self, name: str) -> Leg | Refusal:
        leg = self._legs.make(name)
        return leg if isinstance(leg, Refusal) else self._lacks_memory(name) or leg

    def _lacks_memory(self, name: str) -> Refusal | None:
        needed, free = self._needed(name), free_memory(self._replayer.device)
        if needed > free:
            return Refusal(
                f"it needs about {needed >> 20} MiB more memory, {free >> 20} MiB are free"
            )
        return None

    def _needed(self, name: str) -> int:
        """What the real call took above what is in use now, twice as much in fp32, half as much
        again for values with noise beside the model's own; and what is new."""
        leg = LegName.parse(name)
        activations = self._taken * (1 + leg.fp32) * (3 if leg.noise else 2) // 2
        needed = activations + self._replayer.memory(name)
        if leg.isolated:
            needed += self._session.now.input_bytes  # what is put in place of inputs
        return needed

    def _enter(self, leg: Leg, inside: ExitStack) -> None:
        """Everything as it was before the real call, and what the leg changes."""
        failures = self._before.restore()
        if failures:
            raise RuntimeError(f"the state before the real call is lost: {_some(failures)}")
        self._replayer.clear_gradients()
        leg.enter()
        inside.callback(self._leave, leg)
        inside.enter_context(self._hooks.rewriting(leg.rewrite))
        self._rewrite_parameter_gradients(leg.rewrite, inside)

    def _leave(self, leg: Leg) -> None:
        try:
            leg.exit()
        except Exception as error:
            self._watchdog.end(
                f"rank {self._agreement.rank} could not leave leg {leg.name} ({_words(error)});"
                " training would go on in its precision"
            )

    def _rerun(self, name: str, run: Callable[[], None]) -> str | None:
        """What went wrong, or None."""
        session = self._session
        self._met, self._running = 0, f"{name} {self._runs}"
        self._runs += 1
        try:
            with session.rerun(name) as failures:
                run()
                self._hooks.flush()
        except Exception as error:
            self._agreement.refuse(self._meeting(), _words(error))
            return _words(error)
        except BaseException as error:  # an interrupt: the user's to handle, once all is put back
            self._watchdog.failed(_words(error))
            raise
        return failures[0] if failures else None

    def _meet(self) -> None:
        """To be called by a replayer on all ranks before a collective of its own. Raises if one of
        them is not coming, because its leg has failed."""
        question, self._met = self._meeting(), self._met + 1
        with self._watchdog.waiting():
            against = self._agreement.vote(question, None, self._patience)
        if against is not None:
            raise RuntimeError(against)

    def _meeting(self) -> str:
        return f"{self._running} meets {self._met}"

    def _rewrite_parameter_gradients(self, rewrite: Rewrite | None, inside: ExitStack) -> None:
        if rewrite is None:
            return

        def hook(fqn: str, rule: Any, coordinate: str) -> Any:
            return self._session.guarded(
                lambda gradient: rewrite.parameter_gradient(fqn, rule, coordinate, gradient)
            )

        for fqn, parameter, rule, coordinate in self._replayer.parameters():
            if parameter.requires_grad:
                handle = parameter.register_hook(hook(fqn, rule, coordinate))
                inside.callback(handle.remove)

    def _put_back(self, gradients: list[Part], after: Snapshot) -> None:
        """Gradients first. The optimizer must never see those of a leg."""
        self._watchdog.begins(f"putting back iteration {self._iteration}")
        parts = [*gradients, *after.parts()]
        failures = put_back(parts)
        if failures:
            # Out of memory, most likely: what the leg left over goes, and once more.
            _free()
            failures = put_back(parts)
        if failures:
            self._watchdog.end(
                f"after a rerun rank {self._agreement.rank} could not put back {_some(failures)};"
                " training would go on with a rerun's numbers"
            )

    def _wait_for_the_others(self) -> None:
        """Nobody goes on before all have put everything back: a rank that cannot ends the run."""
        with self._watchdog.waiting():
            try:
                against = self._agreement.vote(PUT_BACK, None, self._patience)
            except Exception as error:
                against = self._refused(PUT_BACK, error)
        self._end_if_silent(PUT_BACK, against)
        self._try(self._scales.forget)

    def _skipped(self, legs: tuple[str, ...], refusal: Refusal) -> None:
        for leg in legs:
            self._try(
                lambda leg=leg: self._session.note(
                    "leg_skipped",
                    leg=leg,
                    iteration=self._iteration,
                    reason=refusal.reason,
                    expected=refusal.expected,
                )
            )

    def _leaked(self, leg: str, after: Snapshot) -> None:
        # What a loop draws beside what is run again is missing at the end of a leg, and put back.
        globals_too = leg == "all" or self._replayer.draws_all
        leaks = after.difference(self._snapshot(), globals_too=globals_too)
        if leaks:
            self._session.note("replay", iteration=self._iteration, leg=leg, leaks=leaks)


def _differing(names: list[str]) -> str | None:
    return f"run again it gives other gradients ({_some(names)})" if names else None


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _some(failures: list[str]) -> str:
    more = len(failures) - _NAMED
    return ", ".join(failures[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
