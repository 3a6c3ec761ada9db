"""Weights and data of the reference in place of the candidate's own.

Both sides then compute the same thing, and every iteration is an experiment of its own: round-off
that an optimizer amplified in one step does not reach the next.
"""

from __future__ import annotations

from typing import Any

import torch

from ttrace.capture.parameter_store import Piece
from ttrace.capture.placed import Box
from ttrace.capture.recorded_values import RecordedValues, Unreadable
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import bitwise_equal

_EXAMPLES = 3
_ROWS, _COLUMNS = 8, 512  # of an item, for whether it tells rows apart
_NO_ROW = "f" * 16  # a digest that no row has, but for chance
_DISTINCT = 16  # values: fewer are a mask's
_EQUAL_WEIGHTS = "give both runs the same initial weights"


class _Tally:
    """How many of the candidate's own values differed, with examples, for the notes."""

    def __init__(self) -> None:
        self.seen = 0
        self.differing = 0
        self.examples: list[str] = []

    def count(self, name: str, differs: bool) -> None:
        self.seen += 1
        if differs:
            self.differing += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(name)


class _RowsOfItems:
    """What was another tensor of the very rows that the reference has there. Rows in another order
    differ in all that tells them apart, and every tensor of them goes with it."""

    def __init__(self) -> None:
        self._telling: dict[tuple[int, int], int] = {}  # (call, micro-batch): most elements
        self._differing: dict[tuple[int, int], list[tuple[str, int]]] = {}

    def add(self, where: tuple[int, int], arg: str, value: torch.Tensor, differs: bool) -> None:
        if differs:
            self._differing.setdefault(where, []).append((arg, value.numel()))
        elif _tells_rows_apart(value):
            self._telling[where] = max(self._telling.get(where, 0), value.numel())

    def others(self) -> dict[str, int]:
        """Their arguments, each with the first micro-batch. A tensor that is larger than what tells
        its rows apart, as an image that is augmented at random is than its label, is not meant."""
        found: dict[str, int] = {}
        for where, arguments in sorted(self._differing.items()):
            for arg, count in arguments:
                if count <= self._telling.get(where, 0):
                    found.setdefault(arg, where[1])
        return found


def _tells_rows_apart(value: torch.Tensor) -> bool:
    """Whether rows of other data would hardly be these: neither positions nor a mask."""
    if value.dim() == 0 or value.numel() == 0:
        return False
    if value.is_complex():
        value = torch.view_as_real(value)
    rows = value.reshape(value.shape[0], -1)[:_ROWS, :_COLUMNS].double().nan_to_num()
    if rows.unique().numel() < _DISTINCT:
        return False
    if len(rows) > 1:
        return not torch.equal(rows, rows[:1].expand_as(rows))
    steps = rows[0].diff()
    return not torch.equal(steps, steps[:1].expand_as(steps))


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
        self._rows = _RowsOfItems()
        self._said: set[str] = set()
        self._kept: set[tuple[str, str]] = set()  # (what, name): said to keep its own value

    def shape_of_input(self, fqn: str, arg: str, iteration: int) -> list[int]:
        """Of an argument of the module that the loop calls, over all rows of the reference's batch;
        empty if it has no such argument."""
        return self._reference.global_shape(("real", fqn, "input", iteration, 0, arg, "forward"))

    @torch.no_grad()
    def parameter(self, piece: Piece, iteration: int, used: bool = False) -> None:
        """Overwrites what this rank holds of a parameter by what iteration `iteration` of the
        reference used. `used`: this iteration has used its own value already, and nothing is
        overwritten."""
        if not self.weights:
            return
        self._tally("weights")
        found = []
        try:
            for own, box in piece.boxes():
                found.append((own, self._value_of(piece, own, box, iteration)))
        except Unreadable as error:
            self._keeps("weights", piece.fqn, iteration, str(error), _EQUAL_WEIGHTS)
            return
        differs = any(not bitwise_equal(value, own) for own, value in found)
        self._count("weights", iteration, piece.fqn, differs)
        if not used:
            for own, value in found:
                own.data.copy_(value)
        elif differs:
            reason = "it was used before capture could know"
            self._keeps("weights", piece.fqn, iteration, reason, _EQUAL_WEIGHTS)

    def _value_of(
        self, piece: Piece, own: torch.Tensor, box: Box | None, iteration: int
    ) -> torch.Tensor:
        """Raises Unreadable."""
        role, since, pass_ = self._last_written(iteration)
        spec = self._session.specs.get(
            piece.fqn, role, "", own, piece.placements, box=box, whole=piece.whole
        )
        if spec is None:
            raise Unreadable(f"parameters of dtype {own.dtype} or of this shape are not recorded")
        where = ("real", piece.fqn, role, since, 0, "", pass_)
        value = self._reference.read(where, spec, 0, own)
        if value is None:
            raise Unreadable("the reference has no such parameter")
        return value

    def _last_written(self, iteration: int) -> tuple[str, int, str]:
        """Role, iteration and pass of the record that holds a parameter of `iteration`."""
        first = self._session.settings.iterations[0]
        return (
            ("param_updated", iteration - 1, "optimizer")
            if iteration > first
            else ("param", first, "forward")
        )

    def shape_of(self, fqn: str, role: str = "param") -> list[int] | None:
        """Of the reference's whole parameter or buffer, or None if it has none."""
        first = self._session.settings.iterations[0]
        shape = self._reference.global_shape(("real", fqn, role, first, 0, "", "forward"))
        has = bool(shape) or self._reference.has(("real", fqn, role, first, 0, "", "forward"))
        return list(shape) if has else None

    @torch.no_grad()
    def buffer(
        self,
        fqn: str,
        buffer: torch.Tensor,
        iteration: int,
        *,
        is_trained: bool = False,
        may_be_trained: bool = False,
    ) -> None:
        """Overwrites a buffer that training changes, as it does parameters. Others may be those of
        a rank: they are kept, and it is said where that makes a difference. `may_be_trained`: it
        is if the reference's first iteration has changed it."""
        if not self.weights:
            return
        spec = self._session.specs.get(fqn, "buffer", "", buffer, "")
        value = self._buffer_at(iteration, fqn, buffer, spec)
        if value is None:
            return
        if may_be_trained:
            after = self._buffer_at(iteration + 1, fqn, buffer, spec)
            is_trained = after is not None and not bitwise_equal(value, after)
        differs = not bitwise_equal(value, buffer)
        if is_trained:
            self._count("weights", iteration, fqn, differs)
            buffer.copy_(value)
        elif differs:
            reason = "a buffer, which differs from the reference's"
            self._keeps("weights", fqn, iteration, reason, _EQUAL_WEIGHTS)

    def _buffer_at(
        self, iteration: int, fqn: str, buffer: torch.Tensor, spec: Any
    ) -> torch.Tensor | None:
        try:
            where = ("real", fqn, "buffer", iteration, 0, "", "forward")
            return self._reference.read(where, spec, 0, buffer)
        except Unreadable:
            return None

    def rows_of_data(self, arg: str, iteration: int, call: int = 0) -> int | None:
        """The size of the reference's global batch, or None if it has no such item."""
        where = ("real", "data", "data", iteration, call, arg, "forward")
        shape = self._reference.global_shape(where)
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
        call: int = 0,
        own_input: bool = False,
        counted: bool = True,
    ) -> torch.Tensor:
        """The reference's values of one tensor of a data item, or the item's own. `own_input`: of
        an argument of the model itself, where there are no items; not `counted`: said before."""
        fqn, role = ("", "input") if own_input else ("data", "data")
        where = ("real", fqn, role, iteration, call, arg, "forward")
        try:
            value = self._reference.read(where, spec, row_begin, tensor)
            reason = f"the reference has no such {'input of the model' if own_input else 'data'}"
        except Unreadable as error:
            value, reason = None, str(error)
        if not counted:
            return tensor if value is None else value
        self._tally("data")
        if value is None:
            way_out = "give both runs the same data, with its rows along the first dimension"
            self._keeps("data", arg, iteration, reason, way_out)
            return tensor
        differs = not bitwise_equal(value, tensor)
        self._count("data", iteration, f"{arg} of micro-batch {micro_batch}", differs)
        if not own_input:
            self._rows.add((call, micro_batch), arg, value, differs)
        return value

    def place(self, is_data: bool, iteration: int, call: int, tensors: list[Any]) -> Any:
        """Where the reference has these rows (native Reference.place); None: it does not say what
        it was fed."""
        if not self._reference.has_fed:
            return None
        return self._reference.place(is_data, iteration, call, tensors)

    def is_relative(self, iteration: int, call: int, one: Any) -> bool:
        """Whether the reference, too, has all of what is fed there as `one` count within a batch.
        Such values name no rows: of unlike ones none is said to be foreign."""
        unlike = one._replace(digests=(_NO_ROW * one.rows, "", "", "", ""))
        found = self.place(True, iteration, call, [unlike])
        return found is None or not found[1]

    @torch.no_grad()
    def whole_item(
        self, tensors: dict[str, tuple[torch.Tensor, Any, dict[str, Any], bool]]
    ) -> dict[str, torch.Tensor] | None:
        """The reference's values of all tensors of an item, or None: a part of one batch beside
        parts of another would be neither. Of each the tensor, its spec, its place, and whether it
        counts the rows."""
        values = {}
        for arg, (tensor, spec, place, has_rows) in tensors.items():
            name, iteration = place["arg"], place["iteration"]
            where = ("real", "data", "data", iteration, place["call"], name, "forward")
            try:
                value = self._reference.read(where, spec, place["row_begin"], tensor)
                reason = "the reference has no such data"
                if value is not None and not has_rows:
                    reason = "the reference has others for other rows"
                    value = value if self._reference.copies_agree(where) else None
            except Unreadable as error:
                value, reason = None, str(error).partition(": ")[2] or str(error)
            if value is None:
                self.keeps_item(arg, iteration, f"its rows are not the reference's, and {reason}")
                return None
            values[arg] = value
        for arg, value in values.items():
            place = tensors[arg][2]
            differs = not bitwise_equal(value, tensors[arg][0])
            name = f"{arg} of micro-batch {place['micro_batch']}"
            self._count("data", place["iteration"], name, differs)
        return values

    def keeps_item(self, arg: str, iteration: int, reason: str) -> None:
        """Its rows are not the reference's, and stay."""
        way_out = (
            "let both runs read the same rows in each step: one seed of the sampler, or"
            " DistributedSampler(shuffle=False)"
        )
        self._keeps("data", arg, iteration, reason, way_out)

    def has_rows(self) -> None:
        """An item whose rows the reference has: nothing is put in its place."""
        self._tally("data").seen += 1

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
        self._tallies.clear()
        for arg, micro_batch in self._rows.others().items():
            self._session.unsupported(
                f"data of other {arg} for the same rows",
                f"in iteration {iteration}, micro-batch {micro_batch}, and maybe more, the rows "
                f"are the reference's and their {arg} are not; these were replaced, so that "
                "nothing that was computed shows them",
                "have both runs make their data alike, or compare with --graft weights",
            )
        self._rows = _RowsOfItems()

    def _count(self, what: str, iteration: int, name: str, differs: bool) -> None:
        # A run that ends before its iteration does says so too: what is recorded from here on is
        # made of the reference's values.
        if differs and what not in self._said and self._session.recording:
            self._said.add(what)
            self._session.note("graft_begins", what=what, iteration=iteration)
        self._tally(what).count(name, differs)

    def _tally(self, what: str) -> _Tally:
        return self._tallies.setdefault(what, _Tally())

    def _keeps(self, what: str, name: str, iteration: int, reason: str, way_out: str) -> None:
        """Said once of each parameter and data item."""
        if (what, name) in self._kept:
            return
        self._kept.add((what, name))
        self._session.note(
            "not_grafted",
            what=what,
            fqn=name,
            iteration=iteration,
            reason=reason,
            way_out=way_out,
        )
