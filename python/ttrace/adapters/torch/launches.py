"""The legs of a plain torch loop: made in one place, be they reruns in this process or launches of
their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.checkpoint import Checkpoints
from ttrace.adapters.torch.hooks import DTensorIsolation, DTensorNoise
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.capture.legs import FullPrecision, Leg, LegFactory, Refusal
from ttrace.capture.settings import LegName


class Launches:
    """What this launch is, and which legs can be launches."""

    def __init__(
        self, session: LoopSession, model: AttachedModel, checkpoints: Checkpoints
    ) -> None:
        self._session = session
        self._model = model
        self._checkpoints = checkpoints

    def leg_factory(
        self,
        refusal: Callable[[str], Refusal | None],
        full_precision: FullPrecision | None = None,
    ) -> LegFactory:
        def isolation(*arguments: Any) -> DTensorIsolation:
            return DTensorIsolation(*arguments, in_checkpoint=self._checkpoints.inside)

        return LegFactory(
            self._session, refusal, full_precision, noise=DTensorNoise, isolation=isolation
        )

    def own_leg(self) -> Leg | Refusal:
        """The leg that this launch should be."""
        return self.leg_factory(self._refusal).make(self._session.settings.leg)

    def note_own(self, own: Leg | Refusal) -> None:
        """What was made of it."""
        settings = self._session.settings
        if isinstance(own, Refusal):
            self._note(settings.leg, own)
        if settings.launch_per_leg:
            self.note_each("it was asked for one launch per leg")

    def note_each(self, reason: str) -> None:
        """Each leg is to be a launch of its own."""
        self._session.note("replayer", name="none", reason=reason)
        for leg in self._session.settings.legs:
            refusal = self._refusal(leg)
            if refusal is not None:
                self._note(leg, refusal)

    def _refusal(self, leg: str) -> Refusal | None:
        if not LegName.parse(leg).fp32:
            return None
        if self._model.is_low_precision():
            return Refusal("a plain torch loop is run in fp32 in its own process only")
        return Refusal("the run is fp32 already", expected=True)

    def _note(self, leg: str, refusal: Refusal) -> None:
        for iteration in self._session.settings.iterations:
            self._session.note(
                "leg_skipped",
                leg=leg,
                iteration=iteration,
                reason=refusal.reason,
                expected=refusal.expected,
            )
