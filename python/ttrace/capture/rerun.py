"""Runs the legs of an iteration: the real call first and untouched, then the reruns, then
everything is put back, so that the user's loop notices nothing.

All ranks run the same legs: they vote before and after each. A rank whose capture is over takes
part in the vote, with no, because the others would wait for it.
"""

from __future__ import annotations

from typing import Any

from ttrace.capture import agreement
from ttrace.capture.adapter import Replayer
from ttrace.capture.isolation import Isolation
from ttrace.capture.isolation_source import IsolationSources
from ttrace.capture.legs import Leg, make_leg, running
from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.noise import Noise
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName
from ttrace.capture.state import Snapshot, random_states
from ttrace.capture.watchdog import Watchdog


class Reruns:
    """One captured iteration: `before` it, then `after` it."""

    def __init__(
        self,
        session: Session,
        hooks: ModuleHooks,
        replayer: Replayer,
        iteration: int,
    ) -> None:
        self._session = session
        self._hooks = hooks
        self._replayer = replayer
        self._iteration = iteration
        self._sources = IsolationSources(session)
        self._before = self._snapshot()

    def _snapshot(self) -> Snapshot:
        states = [*random_states(), *self._replayer.global_states()]
        return Snapshot(self._replayer.watched(), states)

    def run(self, legs: tuple[str, ...]) -> None:
        """To be called by every rank after the real call, with the same legs."""
        # What other ranks may read must be in the files before the vote.
        self._session.note("legs", iteration=self._iteration, names=list(legs))
        if not agreement.all_agree(self._session.recording):
            self._skipped(legs, "capture is off on some rank")
            return
        after = self._snapshot()
        gradients = self._replayer.save_gradients()
        try:
            for position, name in enumerate(legs):
                if not self._run_leg(name, after):
                    self._skipped(legs[position + 1 :], "an earlier leg failed")
                    break
        finally:
            after.restore()
            self._replayer.restore_gradients(gradients)
            leaks = after.difference(self._snapshot())
            if leaks:
                self._leaked("all", leaks)

    def _run_leg(self, name: str, after: Snapshot) -> bool:
        """False if legs must end here. A leg that is not possible is skipped, and others go on."""
        session = self._session
        reason = self._reason_against(name)
        if not agreement.all_agree(reason is None and session.recording):
            self._skipped((name,), reason or "another rank cannot run it")
            return session.recording
        leg = make_leg(name, self._rewrite(name), self._replayer.full_precision)
        with Watchdog(f"{session.settings.run_id}/{self._iteration}/{name}", session.rank) as dog:
            failure = self._rerun(leg)
            if failure is not None:
                dog.failed(failure)
            everywhere = agreement.all_agree(failure is None and session.recording)
        if not everywhere:
            self._skipped((name,), failure or "it failed on another rank")
            return False
        session.seal(self._iteration, name)
        if name == "replay":
            leaks = after.difference(self._snapshot())
            if leaks:
                self._leaked(name, leaks)
        return True

    def _reason_against(self, name: str) -> str | None:
        reason = self._replayer.refusal(name) or self._sources.refusal(name)
        if reason is not None:
            return reason
        needed = self._replayer.memory(name)
        if LegName.parse(name).isolated:
            needed += self._session.input_bytes  # what is put in place of inputs
        free = agreement.free_memory(self._replayer.device)
        if needed > free:
            return f"it needs about {needed >> 20} MiB more memory, {free >> 20} MiB are free"
        return None

    def _rewrite(self, name: str) -> Rewrite | None:
        parsed = LegName.parse(name)
        noise = Noise(self._session, parsed.noise) if parsed.noise else None
        if parsed.isolated:
            source = self._sources.of(name)
            return Isolation(self._session, source, parsed.source, noise)
        return noise

    def _rerun(self, leg: Leg) -> str | None:
        """What went wrong, or None."""
        session, hooks = self._session, self._hooks
        handles: list[Any] = []
        session.failed_hooks = None
        session.leg = leg.name
        try:
            self._before.restore()
            self._replayer.clear_gradients()
            with running(leg):
                hooks.rewrite = leg.rewrite
                handles = self._rewrite_parameter_gradients(leg.rewrite)
                self._replayer.run(leg.name)
                hooks.flush()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for handle in handles:
                handle.remove()
            hooks.rewrite = None
            session.leg = session.settings.leg
            session.moment = session.backward_moment = None
        return session.failed_hooks

    def _rewrite_parameter_gradients(self, rewrite: Rewrite | None) -> list[Any]:
        if rewrite is None:
            return []

        def hook(fqn: str, rule: Any, coordinate: str) -> Any:
            return self._session.guarded(
                lambda gradient: rewrite.parameter_gradient(fqn, rule, coordinate, gradient)
            )

        return [
            parameter.register_hook(hook(fqn, rule, coordinate))
            for fqn, parameter, rule, coordinate in self._replayer.parameters()
            if parameter.requires_grad
        ]

    def _skipped(self, legs: tuple[str, ...], reason: str) -> None:
        for leg in legs:
            self._session.note("leg_skipped", leg=leg, iteration=self._iteration, reason=reason)

    def _leaked(self, leg: str, leaks: list[str]) -> None:
        self._session.note("replay", iteration=self._iteration, leg=leg, leaks=leaks)
