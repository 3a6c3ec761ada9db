"""What observes the model, put in place at the first thing that is captured: until then a loop may
wrap it, cut it and compile it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from ttrace.adapters.torch import model_notes
from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.backward import LossBackward
from ttrace.adapters.torch.checkpoint import Checkpoints
from ttrace.adapters.torch.cut_rows import CutRows
from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.hooks import DTensorIsolation, DTensorNoise, LoopHooks
from ttrace.adapters.torch.store import Store
from ttrace.adapters.torch.topology import Topology, Unsupported
from ttrace.capture import collective_calls
from ttrace.capture.course import Course
from ttrace.capture.graft import Graft
from ttrace.capture.legs import Leg, LegFactory, Refusal
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.settings import LegName


class Instruments:
    """Of one launch, which is one leg. Made when the model's place among the ranks is known."""

    def __init__(
        self,
        session: DeferredSession,
        model: AttachedModel,
        optimizers: Sequence[Any],
        course: Course,
        draws: RandomDraws,
        backward: LossBackward,
        leg: Leg,
    ) -> None:
        graft = None if session.settings.graft is None else Graft(session)
        self.hooks = LoopHooks(session, draws, backward, leg.rewrite)
        self.hooks.install_all(model.root, model.outside)
        self.store = Store(session, model.root, optimizers, leg.rewrite)
        self.source = leg.source
        self.cut_rows: CutRows | None = None
        if model.ddp is not None and session.topology.dp_size > 1:
            ranks = dist.get_process_group_ranks(model.ddp.process_group)
            self.cut_rows = CutRows(session, ranks)
        collective_calls.patch_late(model.patches)
        heard = None if self.cut_rows is None else self.cut_rows.heard
        course.open(self.hooks, self.store, graft, stable=False, in_forward=heard)

    def remove(self) -> None:
        self.hooks.remove()
        self.store.remove()


class Instrumentation:
    """Starts the capture of a model, and ends it."""

    def __init__(
        self,
        session: DeferredSession,
        model: AttachedModel,
        optimizers: Sequence[Any],
        course: Course,
        draws: RandomDraws,
        backward: LossBackward,
        checkpoints: Checkpoints,
        end: Callable[[], None],
    ) -> None:
        """`end()` is called if this launch cannot be the leg that it should be."""
        self.current: Instruments | None = None
        self._session = session
        self._model = model
        self._course = course
        self._end = end
        self._observers = optimizers, course, draws, backward
        self._checkpoints = checkpoints
        self._other_models: list[str] = []  # classes of those that were attached after this one

    def ensure_started(self) -> Instruments | None:
        """At the first thing that is captured: a data item, or a forward. None: capture is over."""
        if not self._session.started:
            self._start()
        return None if self._session.over else self.current

    def remove(self) -> None:
        current, self.current = self.current, None
        if current is not None:
            current.remove()

    def refuse_another(self, name: str) -> None:
        """The loop has attached a second model, of a class of this name: it is not captured."""
        self._other_models.append(name)
        self._note_others()

    def _note_others(self) -> None:
        for name in self._other_models if self._session.started else ():
            self._session.unsupported(
                f"a second model ({name})",
                f"only the first that was attached ({type(self._model.root).__name__}) is captured",
                "attach one module that holds both, or compare each in runs of its own",
            )

    def _start(self) -> None:
        session, model = self._session, self._model
        rank, world = 0, 1
        if dist.is_available() and dist.is_initialized():
            rank, world = dist.get_rank(), dist.get_world_size()
            session.identify(rank)  # before anything can fail: messages name it
        facts = model_notes.facts(model)
        try:
            topology = Topology.of(model.root, model.ddp)
        except Unsupported as refusal:
            session.start(rank, world, [("ranks", world)], [rank], facts)
            session.unsupported(refusal.what, refusal.reason, refusal.way_out)
            raise
        session.start_on(topology, facts)
        model_notes.note_start(session, model)
        self._note_others()
        leg = self._make_leg()
        can_run = isinstance(leg, Leg)
        self.current = Instruments(
            session, model, *self._observers, leg if can_run else Leg(session.leg)
        )
        if model.ddp is not None:
            model_notes.note_ddp(session)
        self._note_skipped(leg)
        if not can_run:
            self._end()

    # The leg that this launch is

    def _make_leg(self) -> Leg | Refusal:
        def isolation(*arguments: Any) -> DTensorIsolation:
            return DTensorIsolation(*arguments, in_checkpoint=self._checkpoints.inside)

        session = self._session
        legs = LegFactory(session, self._refusal, noise=DTensorNoise, isolation=isolation)
        return legs.make(session.settings.leg)

    def _refusal(self, leg: str) -> Refusal | None:
        if not LegName.parse(leg).fp32:
            return None
        if self._model.is_low_precision():
            return Refusal("a plain torch loop cannot be run in fp32 from outside")
        return Refusal("the run is fp32 already", expected=True)

    def _note_skipped(self, own: Leg | Refusal) -> None:
        settings = self._session.settings
        refusals = {leg: self._refusal(leg) for leg in settings.legs}
        refusals[settings.leg] = own if isinstance(own, Refusal) else None
        for leg, refusal in refusals.items():
            for iteration in settings.iterations if refusal is not None else ():
                self._session.note(
                    "leg_skipped",
                    leg=leg,
                    iteration=iteration,
                    reason=refusal.reason,
                    expected=refusal.expected,
                )
