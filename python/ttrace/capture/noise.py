"""One unit of round-off of noise on values and gradients, for the noise legs.

The noise is a pure function of (seed, leg, name, logical index), computed in C++: every rank and a
recomputed forward see the same, and torch's random state is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ttrace.capture.placed import ParameterRule
from ttrace.capture.rewrite import Place, Rewrite, substituted

if TYPE_CHECKING:
    from ttrace.capture.session import Session


class Noise(Rewrite):
    """The noise of one leg. `number` makes legs differ."""

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._seed = session.settings.seed * 1_000_003 + number

    def made(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        """The noise is a constant to autograd, so gradients pass."""
        noisy = self.perturbed(place, tensor)
        return tensor if noisy is None else substituted(tensor, noisy)

    def arriving(self, place: Place, gradient: torch.Tensor) -> torch.Tensor:
        noisy = self.perturbed(place, gradient)
        return gradient if noisy is None else noisy

    def parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        """Terms of a sum on several ranks are different values, and get different noise."""
        moment = self._session.now.backward_moment
        if moment is None or not _can_carry_noise(gradient):
            return None
        spec = self._session.specs.get(
            fqn, "grad_local", "", gradient, rule.placements, whole=rule.whole
        )
        if spec is None:
            return None
        name = f"{fqn}|grad_local||0|{moment.micro_batch}|{coordinate}"
        value = gradient.detach()
        noisy = torch.empty_like(value)
        return noisy if self._perturb(spec, 0, name, value, noisy) else None

    def perturbed(
        self, place: Place, tensor: torch.Tensor, *, in_place: bool = False
    ) -> torch.Tensor | None:
        """A noisy copy, or None of what cannot carry noise. The pass is no part of the noise's
        name: a recomputed value gets that of the first. `in_place`: nobody else has the tensor,
        which gets the noise itself: memory that is touched for the first time costs more than the
        noise does."""
        if not _can_carry_noise(tensor):
            return None
        value = tensor.detach()
        noisy = value if in_place else torch.empty_like(value)
        canonical = place.rule.canonical(value)
        name = f"{place.fqn}|{place.role}|{place.arg}|{place.call}"
        routed = place.rule.routed
        if routed is not None:
            # Which tokens these are only all ranks together know: rows by their number on this one.
            spec = self._session.specs.get(place.fqn, place.role, place.arg, canonical, "")
            name += f"|{place.moment.micro_batch}|{routed.coordinate}"
        else:
            spec = self._session.spec_at(place, canonical)
        if spec is None:
            return None
        if place.is_term:
            name += f"|{place.moment.micro_batch}"
        target = place.rule.canonical(noisy)
        return noisy if self._perturb(spec, place.row_begin, name, canonical, target) else None

    def _perturb(
        self, spec: Any, row_begin: int, name: str, value: torch.Tensor, noisy: torch.Tensor
    ) -> bool:
        """Writes `value` with noise to `noisy`, on whatever device they are. False: capture has
        ended."""
        source = value.cpu()
        target = noisy if noisy.device.type == "cpu" else torch.empty_like(source)
        if not self._session.perturb(spec, row_begin, self._seed, name, source, target):
            return False
        if target is not noisy:
            noisy.copy_(target)
        return True


def _can_carry_noise(tensor: torch.Tensor) -> bool:
    """Of sparse values only those that are there lie somewhere."""
    floating = tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return floating and tensor.layout is torch.strided
