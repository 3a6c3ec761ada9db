"""What Megatron's hooks know of one captured iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ttrace.adapters.megatron.early_reductions import EarlyReductions
from ttrace.adapters.megatron.inputs import OwnInputs
from ttrace.capture.session import Session


class CapturedIteration:
    """Made before its first forward and dropped for the next one. Its schedule is called once, and
    again for each rerun."""

    def __init__(self, session: Session, owners: Iterable[Any]) -> None:
        """`owners`: the modules that have parameters."""
        self.early = EarlyReductions(session)
        self.own_inputs: OwnInputs | None = None  # while the schedule runs
        self._unread = {id(owner) for owner in owners}
        self._fingerprint: Any = None  # of the gradients that the schedule left

    def begin_schedule(self, own_inputs: OwnInputs) -> None:
        self.own_inputs = own_inputs

    def end_schedule(self) -> None:
        self.own_inputs = None

    def read(self, owner: Any) -> bool:
        """Whether the parameters of a module are yet to be read; from now on they are not."""
        if id(owner) not in self._unread:
            return False
        self._unread.discard(id(owner))
        return True

    def leave(self, fingerprint: Any) -> None:
        """What the schedule left in the gradients."""
        self._fingerprint = fingerprint

    def is_left(self, fingerprint: Callable[[], Any]) -> bool:
        """Whether it left this, to be asked once; also where nothing is known."""
        left, self._fingerprint = self._fingerprint, None
        return left is None or left == fingerprint()
