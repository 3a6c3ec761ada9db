"""Weights and data of the reference in place of the candidate's own.

Both sides then compute the same thing, and every iteration is an experiment of its own: round-off
that an optimizer amplified in one step does not reach the next.
"""

from __future__ import annotations

from typing import Any

import torch

from ttrace.capture.recorded_values import RecordedValues, Unreadable, Where
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import bitwise_equal

_EXAMPLES = 3


class _Tally:
    """How many of the candidate's own values differed, with examples, for the notes."""

    def __init__(self) -> None:
        self.seen = 0
        self.differing = 0
        self.examples: list[str] = []
        self.missing: list[str] = []

    def count(self, name: str, differs: bool) -> None:
        self.seen += 1
        if differs:
            self.differing += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(name)


class Graft:
    """Reads the reference's trace. Everything is overwritten in place."""

    def __init__(self, session: Session) -> None:
        settings = session.settings
        assert settings.graft is not None
        self._session = session
        self._reference = RecordedValues(settings.graft)
        self.weights = "weights" in settings.graft_what
        self.data = "data" in settings.graft_what
        self._tallies: dict[str, _Tally] = {}
        self._said: set[str] = set()

    @torch.no_grad()
    def parameter(self, fqn: str, parameter: torch.Tensor, placements: str, iteration: int) -> None:
        """Overwrites a parameter by what iteration `iteration` of the reference used."""
        if not self.weights:
            return
        first = self._session.settings.iterations[0]
        role, since, pass_ = "param", first, "forward"
        if iteration > first:
            role, since, pass_ = "param_updated", iteration - 1, "optimizer"
        spec = self._session.specs.get(fqn, role, "", parameter, placements)
        value = self._read(("real", fqn, role, since, 0, "", pass_), spec, 0, parameter)
        tally = self._tally("weights", iteration)
        if value is None:
            tally.missing.append(fqn)
            return
        tally.count(fqn, not bitwise_equal(value, parameter))
        parameter.data.copy_(value)

    def rows_of_data(self, arg: str, iteration: int) -> int | None:
        """The size of the reference's global batch, or None if it has no such item."""
        shape = self._reference.global_shape(("real", "data", "data", iteration, 0, arg, "forward"))
        return shape[0] if shape else None

    @torch.no_grad()
    def item(
        self,
        arg: str,
        tensor: torch.Tensor,
        spec: Any,
        *,
        iteration: int,
        micro_batch: int,
        row_begin: int,
    ) -> torch.Tensor:
        """The reference's values of one tensor of a data item, or the item's own."""
        where = ("real", "data", "data", iteration, 0, arg, "forward")
        value = self._read(where, spec, row_begin, tensor)
        tally = self._tally("data", iteration)
        name = f"{arg} of micro-batch {micro_batch}"
        if value is None:
            tally.missing.append(name)
            return tensor
        tally.count(name, not bitwise_equal(value, tensor))
        return value

    def report(self, iteration: int) -> None:
        """Writes this iteration's notes."""
        for what, tally in sorted(self._tallies.items()):
            self._session.note(
                "graft",
                what=what,
                iteration=iteration,
                differs=tally.differing,
                of=tally.seen,
                examples=tally.examples,
            )
            if tally.missing:
                names = ", ".join(tally.missing[:_EXAMPLES])
                self._session.note(
                    "notice",
                    text=f"iteration {iteration}: the reference has no {what} for"
                    f" {len(tally.missing)} tensors, which keep their own values: {names}",
                )
        self._tallies.clear()

    def _tally(self, what: str, iteration: int) -> _Tally:
        # A run that ends before its iteration does says so too: what is recorded from here on is
        # made of the reference's values.
        if what not in self._said and self._session.recording:
            self._said.add(what)
            self._session.note("graft_begins", what=what, iteration=iteration)
        return self._tallies.setdefault(what, _Tally())

    def _read(
        self, where: Where, spec: Any, row_begin: int, like: torch.Tensor
    ) -> torch.Tensor | None:
        """None if the reference has no such tensor, or none that fits."""
        try:
            return self._reference.read(where, spec, row_begin, like)
        except Unreadable as error:
            self._session.note(
                "notice", text=f"{where[1]} {where[5]} keeps its own values: {error}"
            )
            return None
