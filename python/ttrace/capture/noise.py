"""One unit of round-off of noise on values and gradients, for the noise legs.

The noise is a pure function of (seed, leg, name, logical index), computed in C++: every rank and a
recomputed forward see the same, and torch's random state is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ttrace import _native
from ttrace.capture.placed import Moment, ParameterRule, TensorRule

if TYPE_CHECKING:
    from ttrace.capture.session import Session


class Noise:
    """The noise of one leg. `number` makes legs differ."""

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._seed = session.settings.seed * 1_000_003 + number

    def on_value(
        self,
        moment: Moment,
        rule: TensorRule,
        fqn: str,
        arg: str,
        call: int,
        tensor: torch.Tensor,
    ) -> torch.Tensor:
        """`tensor` plus its noise. The noise is a constant to autograd, so gradients pass."""
        noisy = self._perturbed(moment, rule, fqn, "output", arg, call, tensor)
        if noisy is None:
            return tensor
        # Exact in any binary format: both are within one unit in the last place.
        difference = noisy - tensor.detach()
        with torch.set_grad_enabled(tensor.requires_grad):
            return tensor + difference

    def on_gradient(
        self,
        moment: Moment,
        rule: TensorRule,
        fqn: str,
        arg: str,
        call: int,
        gradient: torch.Tensor,
    ) -> torch.Tensor:
        """What replaces the gradient that arrives at an output."""
        noisy = self._perturbed(moment, rule, fqn, "grad_output", arg, call, gradient)
        return gradient if noisy is None else noisy

    def on_parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        """What replaces one micro-batch's gradient of a parameter. `coordinate` names this rank's
        term where terms of a sum lie on several ranks: they are different values."""
        moment = self._session.backward_moment
        if moment is None or not _can_carry_noise(gradient):
            return None
        spec = self._session.specs.get(fqn, "grad_local", "", gradient, rule.placements)
        if spec is None:
            return None
        noisy = gradient.detach().clone()
        name = f"{fqn}|grad_local||0|{moment.micro_batch}|{coordinate}"
        _perturb(spec, 0, self._seed, name, noisy)
        return noisy

    def _perturbed(
        self,
        moment: Moment,
        rule: TensorRule,
        fqn: str,
        role: str,
        arg: str,
        call: int,
        tensor: torch.Tensor,
    ) -> torch.Tensor | None:
        if not _can_carry_noise(tensor):
            return None
        noisy = tensor.detach().clone()
        canonical = rule.canonical(noisy)
        spec = self._session.specs.get(
            fqn,
            role,
            arg,
            canonical,
            rule.placements,
            batch_dim=rule.batch_dim,
            batch_global=moment.batch.global_rows if rule.batch_dim >= 0 else 0,
        )
        if spec is None:
            return None
        row = moment.row_begin if rule.batch_dim >= 0 else 0
        _perturb(spec, row, self._seed, f"{fqn}|{role}|{arg}|{call}", canonical)
        return noisy


def _can_carry_noise(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _perturb(spec: Any, row_begin: int, seed: int, name: str, tensor: torch.Tensor) -> None:
    """In place, on whatever device the tensor is."""
    host = tensor if tensor.device.type == "cpu" else tensor.cpu()
    _native.perturb(spec, row_begin, seed, name, host.data_ptr(), host.stride())
    if host is not tensor:
        tensor.copy_(host)
