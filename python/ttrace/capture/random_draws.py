"""Random numbers that a forward draws by itself: noise, stochastic depth, dropout inside a kernel.

Runs of other topologies draw others, and what is computed with them is another computation. They
show in the state of torch's generators, which is looked at where a module begins and ends. Dropout
that `capture.dropout` knows is left out: it has masks that can be audited.

Not seen: generators of the model's own, and numbers of a state that is put back afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ttrace.capture.session import Session


class RandomDraws:
    """Of the forwards of one model in the real leg."""

    def __init__(self, session: Session, innermost: Callable[[], str | None]) -> None:
        """`innermost` names the module whose forward runs."""
        self._session = session
        self._innermost = innermost
        self._states: list[torch.Tensor] = []  # of the generators, when they were last looked at
        self._apart = 0  # depth of `apart`
        self._drawn: dict[tuple[str, int], hashlib._Hash] = {}  # by module and micro-batch

    @property
    def _looks(self) -> bool:
        """Recomputed forwards begin with states of their own."""
        session = self._session
        in_forward = session.moment is not None and session.pass_ == "forward"
        return in_forward and not self._apart and session.leg == "real" and session.recording

    def begin(self) -> None:
        """A forward of the model begins, or something else was drawn that is accounted for."""
        if not self._apart:
            self._states = _states() if self._looks else []

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Inside, generators have a state of another course, which is put back at the end."""
        self._session.guarded(self.look)()
        self._apart += 1
        try:
            yield
        finally:
            self._apart -= 1

    def look(self) -> None:
        """What was drawn since was drawn by the module that runs: to be called before another one
        begins, and where it ends."""
        if not self._looks or not self._states:
            return
        moment, states = self._session.moment, _states()
        unchanged = len(states) == len(self._states) and all(map(torch.equal, states, self._states))
        if moment is None or unchanged:
            return
        key = self._innermost() or "", moment.micro_batch
        drawn = self._drawn.setdefault(key, hashlib.sha256())
        for state in (*self._states, *states):
            drawn.update(state.numpy().tobytes())
        self._states = states

    def end_iteration(self) -> None:
        """Before the iteration is sealed."""
        by_module: dict[str, list[str]] = {}
        for (fqn, micro_batch), drawn in self._drawn.items():
            by_module.setdefault(fqn, []).append(f"{micro_batch}:{drawn.hexdigest()[:32]}")
        self._drawn.clear()
        for fqn, draws in by_module.items():
            self._session.note(
                "random_draws", iteration=self._session.iteration, fqn=fqn, draws=draws
            )


def _states() -> list[torch.Tensor]:
    """Of the generators that a forward uses unless it is told to use another one; on the CPU."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states.append(torch.cuda.get_rng_state())
    return states
