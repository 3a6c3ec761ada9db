"""What a leg puts in place of the values that pass through the module hooks.

The base changes nothing; noise legs and isolated legs are subclasses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ttrace.capture.placed import Moment, ParameterRule, TensorRule


class Place(NamedTuple):
    """One occurrence of one input, output or gradient of a module."""

    moment: Moment
    rule: TensorRule
    fqn: str
    role: str
    arg: str
    call: int
    pass_: str

    @property
    def placements(self) -> str:
        terms = self.rule.grad_placements
        return terms if terms is not None and self.pass_ == "backward" else self.rule.placements

    @property
    def is_term(self) -> bool:
        """Whether this is one micro-batch's term of a gradient."""
        if self.rule.routed is not None or self.rule.batch_dim >= 0:
            return False
        return self.placements is self.rule.grad_placements

    @property
    def is_only_term(self) -> bool:
        """Of a sum over micro-batches that has no others."""
        alone = self.moment.batch.micro_batches == 1
        return self.is_term and alone and self.placements.count("Partial") == 1

    def as_sum(self) -> Place:
        """The place of all terms together."""
        return self._replace(rule=replace(self.rule, grad_placements=None))

    @property
    def row_begin(self) -> int:
        if self.rule.batch_dim < 0:
            return 0
        return self.moment.row_begin + self.rule.row_offset


class Rewrite:
    """Every method returns what replaces its tensor: the same object if nothing does."""

    def given(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """What the module gets as an input. What arrived has been recorded."""
        return tensor

    def seen(self, place: Place, tensor: torch.Tensor) -> None:
        """An output as it was recorded."""

    def made(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """What is recorded of an output that a module computed, and handed on."""
        return tensor

    def handed_on(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """What goes on from an output, after it has been recorded."""
        return tensor

    def arriving(self, place: Place, gradient: torch.Tensor) -> torch.Tensor:
        """What is recorded of a gradient that arrives at such an output, and goes on."""
        return gradient

    def passed_on(self, place: Place, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient that goes on into a module, after what arrived has been recorded."""
        return gradient

    def parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        """What replaces one micro-batch's gradient of a parameter; None: nothing. `coordinate`
        names this rank's term where terms of a sum lie on several ranks."""
        return None


def substituted(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value, in the place of a tensor, which the gradient goes to. The result is a tensor of
    its own and no view, so that the module may change it in place."""
    if not tensor.requires_grad:
        return value
    with torch.enable_grad():
        return Substitute.apply(tensor, [value])


class Substitute(torch.autograd.Function):
    """See `substituted`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, value: list[torch.Tensor]) -> torch.Tensor:
        return value[0]  # in a list: autograd would take a tensor argument for an input

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
