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
from ttrace.adapters.torch.hooks import LoopHooks
from ttrace.adapters.torch.launches import Launches
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.reduction_by_hand import ReductionByHand
from ttrace.adapters.torch.refusals import Unsupported
from ttrace.adapters.torch.store import Store
from ttrace.adapters.torch.topology import Topology
from ttrace.capture import collective_calls
from ttrace.capture.course import Course
from ttrace.capture.graft import Graft
from ttrace.capture.legs import Leg
from ttrace.capture.random_draws import RandomDraws


class Instruments:
    """Of one launch, which is one leg. Made when the model's place among the ranks is known."""

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        optimizers: Sequence[Any],
        course: Course,
        draws: RandomDraws,
        backward: LossBackward,
        leg: Leg,
        launches: Launches,
    ) -> None:
        graft = None if session.settings.graft is None else Graft(session)
        self.hooks = LoopHooks(session, draws, backward, leg.rewrite)
        self.hooks.install_all(model)
        self.store = Store(session, model.root, optimizers, lambda: self.hooks.rewrite)
        self.launches = launches
        self.runs_again = False  # whether an iteration has, and was the same
        self.source = leg.source
        self.cut_rows: CutRows | None = None
        topology = session.topology
        if topology.batch_parts > 1 and topology.declared is None:
            ranks = topology.ranks_along(topology.batch)
            self.cut_rows = CutRows(session, ranks, topology.wrapped)
        by_hand = topology.by_hand
        self.reduction = ReductionByHand(session, self.store) if by_hand else None
        collective_calls.patch_late(model.patches)
        course.open(
            self.hooks,
            self.store,
            graft,
            stable=False,
            in_forward=None if self.cut_rows is None else self.cut_rows.heard,
            reducing=None if self.reduction is None else self.reduction.heard,
        )

    def remove(self) -> None:
        self.hooks.remove()
        self.store.remove()


class Instrumentation:
    """Starts the capture of a model, and ends it."""

    def __init__(
        self,
        session: LoopSession,
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
        self._launches = Launches(session, model, checkpoints)
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
                f"only the first that was attached ({self._model.kind}) is captured",
                "give both in one call of attach, or compare each in runs of its own",
            )

    def _start(self) -> None:
        session, model = self._session, self._model
        rank, world = 0, 1
        if dist.is_available() and dist.is_initialized():
            rank, world = dist.get_rank(), dist.get_world_size()
            session.identify(rank)  # before anything can fail: messages name it
        facts = model_notes.facts(model)
        try:
            topology = Topology.of(model.root, model.ddps, session.declared)
        except Unsupported as refusal:
            session.start(rank, world, [("ranks", world)], [rank], facts)
            session.unsupported(refusal.what, refusal.reason, refusal.way_out)
            raise
        session.start_on(topology, facts)
        model_notes.note_start(session, model)
        self._note_others()
        leg = self._launches.own_leg()
        can_run = isinstance(leg, Leg)
        self.current = Instruments(
            session,
            model,
            *self._observers,
            leg if can_run else Leg(session.leg),
            self._launches,
        )
        if model.ddps:
            model_notes.note_ddp(session)
        self._launches.note_own(leg)
        if not can_run:
            self._end()
