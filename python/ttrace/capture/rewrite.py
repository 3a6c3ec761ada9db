"""What a leg puts in place of the values that pass through the module hooks.

The base changes nothing; noise legs and isolated legs are subclasses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ttrace.capture.placed import Moment, ParameterRule, TensorRule


@dataclass(frozen=True)
class Place:
    """One occurrence of one input, output or gradient of a module."""

    moment: Moment
    rule: TensorRule
    fqn: str
    role: str
    arg: str
    call: int
    pass_: str

    @property
    def row_begin(self) -> int:
        if self.rule.batch_dim < 0:
            return 0
        return self.moment.row_begin + self.rule.row_offset

    @property
    def global_rows(self) -> int:
        return self.moment.batch.global_rows if self.rule.batch_dim >= 0 else 0


class Rewrite:
    """Every method returns what replaces its tensor: the same object if nothing does."""

    def given(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """What the module gets as an input. What arrived has been recorded."""
        return tensor

    def made(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """What is recorded of an output that a module computed, and handed on."""
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
