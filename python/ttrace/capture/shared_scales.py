"""What ranks tell each other of tensors that they hold parts of, so that each of them can measure a
noise leg where it runs: errors of single elements are relative to the rms of the whole tensor.

A rank posts how large its parts are before a vote, rank 0 adds up after it and posts what all read
after the next one. So nobody waits, and the votes are those that the legs need anyway. Where
something is missing the noise legs keep the values of such tensors, and a note says why. What is
added up, and how, is src/in_place/element_scales.h.
"""

from __future__ import annotations

from collections.abc import Callable

from ttrace import _native
from ttrace.capture.agreement import Agreement
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName

_ADDS_UP = 0  # this rank
_SCALES, _PROBLEM = b"+", b"-"  # and then what was added up, or why it could not be


class SharedScales:
    """Of the reruns of one iteration."""

    def __init__(self, session: Session, agreement: Agreement, legs: tuple[str, ...]) -> None:
        self._session = session
        self._agreement = agreement
        shared = session.measures_noise and agreement.ranks > 1
        noise = [leg for leg in map(LegName.parse, legs) if leg.noise] if shared else []
        self._sources = {leg.source for leg in noise}
        self._told: list[str] = []  # legs, in their order
        self._added = self._learned = 0  # of these

    def tell(self, leg: str) -> None:
        """Before the vote on whether `leg` is complete on all ranks. It has to be flushed."""
        parsed = LegName.parse(leg)
        if parsed.noise or parsed.isolated or parsed.source not in self._sources:
            return
        self._told.append(leg)
        mine = self._name(leg, self._agreement.rank)
        self._or_say(lambda: self._agreement.post(mine, self._session.scales_message()))

    def add_up(self) -> None:
        """After that vote."""
        legs, self._added = self._told[self._added :], len(self._told)
        for leg in legs if self._agreement.rank == _ADDS_UP else ():
            self._or_say(lambda leg=leg: self._agreement.post(self._name(leg), self._added_up(leg)))

    def learn(self) -> None:
        """After another vote."""
        legs, self._learned = self._told[self._learned :], len(self._told)
        for leg in legs:
            self._or_say(lambda leg=leg: self._take(self._agreement.posted(self._name(leg))))

    def forget(self) -> None:
        """Once no rank will learn any more."""
        for leg in self._told:
            mine = [self._name(leg, self._agreement.rank)]
            if self._agreement.rank == _ADDS_UP:
                mine.append(self._name(leg))
            for name in mine:
                self._or_say(lambda name=name: self._agreement.withdraw(name))

    def _added_up(self, leg: str) -> bytes:
        messages: list[bytes] = []
        for rank in range(self._agreement.ranks):
            message = self._agreement.posted(self._name(leg, rank))
            if message is None:
                return _PROBLEM + f"rank {rank} did not say how large its parts are".encode()
            messages.append(message)
        try:
            return _SCALES + _native.add_up_scales(messages)
        except Exception as error:
            return _PROBLEM + str(error).encode()

    def _take(self, answer: bytes | None) -> None:
        if answer is None:
            raise ValueError(f"rank {_ADDS_UP} has not added up how large the parts are")
        if not answer.startswith(_SCALES):
            raise ValueError(answer.removeprefix(_PROBLEM).decode())
        self._session.learn_scales(answer.removeprefix(_SCALES))

    def _or_say(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            text = "noise legs keep the values of tensors that lie on several ranks"
            self._session.note("notice", text=f"{text}: {error}")

    def _name(self, leg: str, rank: int | None = None) -> str:
        return f"scales of {leg}" if rank is None else f"scales of {leg} on {rank}"
