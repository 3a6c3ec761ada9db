"""Every module alone: inputs and arriving gradients are replaced by the reference's values.

Then no error crosses from one module into the next, and each module that computes something wrong
shows by itself, in forward and in backward. What arrives is recorded before it is replaced, so that
the code between two modules can be told from the modules.

A reference that is isolated from its own values computes what it computed before, bit for bit. With
noise on what is put in place, it measures how far round-off moves a value within one module.

Source: input rewriting of TTrace (arXiv 2506.09280), extended to gradients and to all modules at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ttrace.capture.noise import Noise
from ttrace.capture.placed import ROUTING_MAP, ROUTING_MAP_USED, ParameterRule
from ttrace.capture.recorded_values import RecordedValues, Unreadable, Where
from ttrace.capture.rewrite import Place, Rewrite, substituted

if TYPE_CHECKING:
    from ttrace.capture.session import Session


class Isolation(Rewrite):
    """One isolated leg."""

    def __init__(
        self, session: Session, source: RecordedValues, source_leg: str, noise: Noise | None
    ) -> None:
        """`source_leg` is the leg of `source` whose values are given."""
        self._session = session
        self._source = source
        self._source_leg = source_leg
        self._noise = noise
        self._kept: set[tuple[int, str, str, str]] = set()
        # Outputs without a batch dimension that are the reference's bit for bit.
        self._shared: set[tuple[Any, ...]] = set()
        self._maps: dict[tuple[Any, ...], torch.Tensor | None] = {}

    def seen(self, place: Place, tensor: torch.Tensor) -> None:
        """Of one micro-batch that both runs have, all is equal: what all rows share is the same in
        the reference's others, too. One number may be that by chance."""
        rule = place.rule
        if rule.grad_placements is None or rule.routed is not None or rule.batch_dim >= 0:
            return
        if tensor.numel() <= 1:
            return
        if not self._source.copies_agree(self._where(place, place.pass_)):
            return
        try:
            value = self._reference(place, tensor)
        except Unreadable:
            return
        if value is not None and torch.equal(value, tensor.detach()):
            self._shared.add(_output_key(place))

    def given(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not place.fqn:
            # Token ids, positions, masks, what the model itself is given: data, and grafted.
            return tensor
        return self._in_place_of(place, tensor)

    def _in_place_of(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        value = self.value(place, tensor)
        return tensor if value is None else substituted(tensor, value)

    def handed_on(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        if not place.rule.decides:
            return tensor
        given = self._in_place_of(place, tensor)
        if place.arg == ROUTING_MAP:
            # By this the rows that it sends can be told.
            self._session.record_at(place._replace(arg=ROUTING_MAP_USED), given)
        return given

    def made(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._noise is None else self._noise.made(place, tensor)

    def passed_on(self, place: Place, gradient: torch.Tensor) -> torch.Tensor:
        value = self.value(place, gradient)
        return gradient if value is None else value

    def parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        if self._noise is None:
            return None
        return self._noise.parameter_gradient(fqn, rule, coordinate, gradient)

    def value(self, place: Place, tensor: torch.Tensor) -> torch.Tensor | None:
        """The source's value, laid out like `tensor`. Of the gradient of what all rows share the
        first micro-batch gets all, and nothing is left for the others: what is made of it is summed
        over all of them, too."""
        is_rest = False
        if place.is_term:
            if not place.is_only_term and _output_key(place) not in self._shared:
                return self.keeps(place, "a sum whose terms the reference does not have")
            is_rest = place.moment.micro_batch > 0
            place = place.as_sum()
        try:
            value = self._reference(place, tensor)
        except Unreadable as error:
            return self.keeps(place, str(error))
        if value is None:
            return self.keeps(place, "the reference has no such tensor")
        if is_rest:
            return torch.zeros_like(tensor)
        return self.noisy(place, value)

    def noisy(self, place: Place, value: torch.Tensor) -> torch.Tensor:
        """What is put in place of a value that was read, which nobody else has."""
        if self._noise is None:
            return value
        noisy = self._noise.perturbed(place, value, in_place=True)
        return value if noisy is None else noisy

    def _reference(self, place: Place, tensor: torch.Tensor) -> torch.Tensor | None:
        """Raises Unreadable."""
        canonical = place.rule.canonical(tensor.detach())
        value = self._read(place, self._session.spec_at(place, canonical), canonical)
        return None if value is None else place.rule.local(value).contiguous()

    def _read(self, place: Place, spec: Any, like: torch.Tensor) -> torch.Tensor | None:
        # A recomputed forward is given what the first one was.
        passes = dict.fromkeys((place.pass_, "forward" if place.role == "input" else "backward"))
        tokens = self._tokens(place)
        if tokens is not None and tokens.numel() != like.shape[0]:
            raise Unreadable(f"{like.shape[0]} rows where the router sent {tokens.numel()}")
        for pass_ in passes:
            where = self._where(place, pass_)
            if tokens is None:
                value = self._source.read(where, spec, place.row_begin, like)
            else:
                value = self._source.read_rows(where, spec, tokens, like)
            if value is not None:
                return value
        return None

    def _tokens(self, place: Place) -> torch.Tensor | None:
        """Of routed rows: which they are, by the source's own routing, which is handed on."""
        routed = place.rule.routed
        if routed is None:
            return None
        rows = routed.rows
        key = (place.moment.iteration, rows.by, place.call)
        if key not in self._maps:
            where = (self._source_leg, rows.by, "output", key[0], 0, ROUTING_MAP, "forward")
            shape = self._source.global_shape(where)
            whole = torch.empty(shape, dtype=torch.bool)
            spec = self._session.specs.get(
                rows.by, "output", ROUTING_MAP, whole, "", batch_dim=1, batch_global=shape[1]
            )
            self._maps.clear()  # of one layer at a time
            self._maps[key] = self._source.read(where, spec, 0, whole)
        chosen = self._maps[key]
        if chosen is None:
            raise Unreadable(f"the reference has no routing of {rows.by}")
        return routed.tokens(chosen[:, :, rows.expert], place.moment)

    def _where(self, place: Place, pass_: str) -> Where:
        iteration = place.moment.iteration
        return self._source_leg, place.fqn, place.role, iteration, place.call, place.arg, pass_

    def keeps(self, place: Place, reason: str) -> None:
        """Says once for a tensor of an iteration that its own value stays: what it goes into is
        not isolated."""
        key = (place.moment.iteration, place.fqn, place.role, place.arg)
        if key in self._kept:
            return
        self._kept.add(key)
        self._session.note(
            "not_isolated",
            leg=self._session.leg,
            iteration=place.moment.iteration,
            fqn=place.fqn,
            role=place.role,
            arg=place.arg,
            reason=reason,
        )


def _output_key(place: Place) -> tuple[Any, ...]:
    return place.moment, place.fqn, place.arg, place.call
