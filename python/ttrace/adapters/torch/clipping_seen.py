"""By what the gradients of one iteration were seen to be clipped."""

from __future__ import annotations

import math
from typing import Any

import torch

from ttrace.capture import hyperparameters


class ClippingSeen:
    """Clipping that is not seen is not "none": a loop may have a function of its own for it."""

    def __init__(self) -> None:
        self.has_norm = False  # of all gradients, before they were clipped
        self._limits: dict[str, float | None] = {}
        self._several: set[str] = set()  # limits that differ between calls: not one fact
        self._norms: list[tuple[torch.Tensor, float]] = []  # each with its limit
        self.looked_at = False  # by torch's functions, since the last backward
        self._clippings = 0  # two without a backward in between are one
        self._follows_backward = True
        self._stepped = False  # since the last backward

    @property
    def is_one_fact(self) -> bool:
        return not self._several

    def of_step(self) -> dict[str, Any]:
        """For the note of the step's hyperparameters. Reads norms from the device."""
        if not self._norms:
            return dict(self._limits)
        # A norm that is not finite clips nothing that could be compared.
        above = any(most < float(norm) < math.inf for norm, most in self._norms)
        return {
            **self._limits,
            hyperparameters.CLIPPED: above,
            hyperparameters.CLIPPINGS: self._clippings,
        }

    def backward_over(self) -> None:
        if self._stepped:
            self._limits, self._several, self._norms, self._clippings = {}, set(), [], 0
        self._stepped = False
        self._follows_backward = True
        self.looked_at = False

    def step_over(self) -> None:
        """What was clipped before it is not what a later step finds, if a backward follows."""
        self._stepped = True

    def limit(self, name: str, value: float) -> None:
        # An infinite limit is how one asks for the norm alone.
        seen = float(value) if math.isfinite(value) else None
        if name in self._several or self._limits.get(name, seen) != seen:
            self._several.add(name)
            self._limits.pop(name, None)
        else:
            self._limits[name] = seen

    def clip(self, most: float, norm_type: float) -> None:
        self._clippings += self._follows_backward
        self._follows_backward = False
        self.limit("clip_grad", most)
        self.limit("clip_grad_norm_type", norm_type)

    def norm(self, norm: torch.Tensor, most: float) -> None:
        self._norms.append((norm.detach(), float(most)))

    def take_norm(self) -> None:
        """A norm is that of all gradients."""
        self.has_norm = True
