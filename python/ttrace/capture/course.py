"""The course of a run through its captured iterations: one for every framework.

             begin           backward_done            step_begins            step_over
    OUTSIDE -------> RUNNING --------------> COMPLETE ------------> STEPPING ----------> OUTSIDE
                                             |      ^
                                   rerunning v      |
                                             RERUNNING

An adapter reports what its framework does, in these words. What is recorded of parameters,
gradients and the step, under which names and in which order, is decided here. A report that does
not belong to the phase is no error: loops skip steps, clip twice and stop in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto

import torch

from ttrace.capture.collectives import CollectiveLog, InForward, Reducing
from ttrace.capture.dropout import Dropout
from ttrace.capture.found_gradients import note_found_gradients
from ttrace.capture.gradient_norms import note_norms
from ttrace.capture.graft import Graft
from ttrace.capture.kept_states import KeptStates
from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.parameter_store import ParameterStore, Piece
from ttrace.capture.placed import Scale
from ttrace.capture.recorder import NO_MEMORY
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import has_memory

# States that are weights: grafted where those are.
_WEIGHTS = ("updated", "master")


class Phase(Enum):
    OUTSIDE = auto()  # of any captured iteration
    RUNNING = auto()  # forwards and backwards
    COMPLETE = auto()  # gradients are
    RERUNNING = auto()  # forwards and backwards of another leg
    STEPPING = auto()  # inside of the optimizer's step


class Course:
    """One per capture. Does nothing before `open` and after `close`."""

    def __init__(self, session: Session, dropout: Dropout) -> None:
        self.phase = Phase.OUTSIDE
        self.graft: Graft | None = None
        self.collectives: CollectiveLog | None = None
        self._session = session
        self._dropout = dropout
        self._hooks: ModuleHooks | None = None
        self._store: ParameterStore | None = None
        self._states = KeptStates(session)

    def open(
        self,
        hooks: ModuleHooks,
        store: ParameterStore,
        graft: Graft | None,
        *,
        stable: bool,
        in_forward: InForward | None = None,
        reducing: Reducing | None = None,
    ) -> None:
        """When model and optimizer are known. `stable`: gradients stay where they are in memory for
        an iteration. `in_forward` is told of the collectives of the model's forward, and `reducing`
        of those that may reduce gradients."""
        self._hooks, self._store, self.graft = hooks, store, graft
        self.collectives = CollectiveLog(
            self._session,
            hooks,
            store.gradients,
            stable=stable,
            in_forward=in_forward,
            reducing=reducing,
        )

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def captures(self) -> bool:
        """Whether the current iteration is captured."""
        return self.is_open and self._session.iteration in self._session.settings.iterations

    @property
    def is_first(self) -> bool:
        """Whether it is the first of those that are."""
        return self._session.iteration == self._session.settings.iterations[0]

    def close(self) -> None:
        """Nothing of it remains. The session is finished if it was not."""
        if self._session.recording:
            self._session.finish()
        if self.collectives is not None:
            self.collectives.stop()
        self._dropout.remove()
        self._hooks = self._store = self.collectives = None
        self.phase = Phase.OUTSIDE

    def begin(self) -> None:
        """A captured iteration: before its first forward."""
        assert self._store is not None and self.collectives is not None
        self._store.begin()
        self.collectives.begin()
        for arg, piece in self._states_in_memory():
            if arg in _WEIGHTS:  # while they are the run's own
                self._states.find(arg, piece)
        self.phase = Phase.RUNNING

    def read(self, parameters: Iterable[Piece], used: bool = False) -> None:
        """Parameters as this iteration uses them, and the reference's in their place. `used`: it
        has used them already, and nothing is overwritten."""
        session = self._session
        role, iteration, pass_ = self.parameters_are()
        for piece in parameters:
            self._record(role, "", piece, iteration, pass_, always=True)
            if self.graft is not None:
                self.graft.parameter(piece, session.iteration, used)

    def use(self, parameters: Iterable[Piece]) -> None:
        """What the iteration computes with, once all of it is there: the step should find it so."""
        if self._session.leg == "real":
            for piece in parameters:
                self._states.use(piece)

    def parameters_are(self) -> tuple[str, int, str]:
        """Role, iteration and pass of parameters that are read now."""
        if self.is_first:
            return "param", self._session.iteration, "forward"
        return "param_updated", self._session.iteration - 1, "optimizer"

    def backward_done(self) -> None:
        """Gradients are complete: nothing reaches them before the optimizer's step but what
        changes all, such as clipping."""
        assert self._store is not None and self._hooks is not None
        self._hooks.flush()
        self._record_local(self._store.local_gradients())
        self._store.note_parts()
        order = self._store.reduction_order()
        if self.is_first and order:
            self._session.note("reduction_order", names=list(order))
        if self.phase is not Phase.STEPPING:  # one of several optimizers may have begun
            self.phase = Phase.COMPLETE

    def grafted(self) -> None:
        """All of this iteration that is overwritten was: what the optimizer holds follows."""
        if self.graft is None:
            return
        self.graft.report(self._session.iteration)
        if self.graft.weights and self._store is not None:
            self._store.write_back()

    @contextmanager
    def rerunning(self) -> Iterator[None]:
        """Inside, its forwards and backwards run as another leg."""
        assert self._store is not None
        self._store.begin()
        before, self.phase = self.phase, Phase.RERUNNING
        try:
            yield
        finally:
            self.phase = before

    def rerun_done(self, reduced: bool) -> None:
        """`reduced`: what the schedule left is what the optimizer would find."""
        assert self._store is not None and self._hooks is not None
        self._hooks.flush()
        self._record_local(self._store.local_gradients())
        if reduced:
            self.record_reduced()

    def reducing(self, pieces: Iterable[Piece]) -> None:
        """Local gradients that are about to be reduced, in a backward or after it."""
        if self.phase in (Phase.RUNNING, Phase.RERUNNING):
            self._record_local(pieces)

    def _record_local(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._gradient("grad_local", piece)

    def record_reduced(self) -> None:
        """As the optimizer finds them, and what torch's own primitive gives for their norms."""
        assert self._store is not None
        found = []
        for piece in self._store.reduced_gradients():
            self._gradient("grad_reduced", piece)
            # Of a sum that is pending, what the rank holds says nothing of its norm.
            if "Partial" not in piece.placements:
                found.append((piece.fqn, piece.tensor))
        note_norms(self._session, self._session.iteration, found)

    def _gradient(self, role: str, piece: Piece) -> None:
        self._record(role, "", piece, self._session.iteration, "backward")

    def _record(
        self, role: str, arg: str, piece: Piece, iteration: int, pass_: str, always: bool = False
    ) -> None:
        for tensor, box in piece.boxes():
            self._session.record(
                piece.fqn,
                role,
                arg,
                tensor,
                piece.placements,
                iteration=iteration,
                pass_=pass_,
                scale=piece.scale,
                reduced_over=piece.reduced_over,
                box=box,
                whole=piece.whole,
                always=always,
            )

    def _states_in_memory(self) -> Iterator[tuple[str, Piece]]:
        assert self._store is not None
        for arg, piece in self._store.states():
            if has_memory(piece.tensor):
                yield arg, piece
            else:
                self._session.not_recorded(piece.fqn, "optim_state", arg, NO_MEMORY)

    def _record_states_before(self) -> None:
        """What the step before this one left is in the trace already: only what was changed since,
        or follows grafted weights, is recorded again."""
        assert self._store is not None
        grafted = self.graft is not None and self.graft.weights
        for arg, piece in self._states_in_memory():
            if arg not in _WEIGHTS:
                known = self._states.find(arg, piece)
            else:
                known = not grafted and self._states.is_left(arg, piece)
            if not known:
                self._record("optim_state", arg, piece, self._session.iteration, "forward")
        for arg, piece in self._store.states_beside():
            self._states.find(arg, piece)
        for piece in self._store.parameters_used():
            self._states.find_used(piece)
        self._states.note()
        note_found_gradients(self._session, self._store.found_gradients())

    def _record_states_after(self) -> None:
        assert self._store is not None
        for arg, piece in self._states_in_memory():
            self._states.leave(arg, piece)
            self._record("optim_state", arg, piece, self._session.iteration, "optimizer")
        for arg, piece in self._store.states_beside():
            self._states.leave(arg, piece)

    def step_begins(self, note_hyperparameters: Callable[[], None]) -> None:
        if not self.captures:
            return
        assert self.collectives is not None
        if self.phase is not Phase.STEPPING:
            self._record_states_before()
        note_hyperparameters()
        self.collectives.enter("optimizer")
        self.phase = Phase.STEPPING

    def norm(self, value: torch.Tensor, scale: Scale = (1, 1)) -> None:
        """Of all gradients, as the loop's own code found it; a tensor of one element."""
        self._session.record(
            "grad_norm",
            "grad_norm",
            "",
            value.detach().reshape(()),
            iteration=self._session.iteration,
            pass_="optimizer",
            scale=scale,
        )

    def skipped(self, reason: str, cleared: bool = False) -> None:
        """The optimizer changed nothing. `cleared`: the loop threw the gradients away."""
        session = self._session
        session.note("skipped_step", iteration=session.iteration, reason=reason, cleared=cleared)

    def step_over(self) -> None:
        """The iteration is: all of it is in the files."""
        session = self._session
        if self.phase is Phase.STEPPING:
            self._record_states_after()
        if self.collectives is not None:
            self.collectives.end()
        self._dropout.end_iteration()
        session.seal(session.iteration, session.leg)
        self.phase = Phase.OUTSIDE
