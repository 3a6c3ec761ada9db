"""The factor that fp16 training puts on the loss, and so on every gradient."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch

from ttrace.capture.placed import Scale

_LARGEST = 2**62  # of a trace's scales


def loss_scale(config: Any, device: torch.device) -> float:
    """What the schedule multiplies the loss by: asked of the function that it will use."""
    scale = getattr(config, "grad_scale_func", None)
    if scale is None:
        return 1.0
    with torch.no_grad():
        return float(scale(torch.ones((), dtype=torch.float32, device=device)))


def divided(scale: Scale, factor: float) -> Scale:
    """The scale of a record whose value carries `factor` as well. Exact, as loss scales are."""
    if factor == 1.0:
        return scale
    if 0 < factor < float("inf"):
        exact = Fraction(scale[0], scale[1]) / Fraction(factor)
        if max(exact.numerator, exact.denominator) <= _LARGEST:
            return exact.numerator, exact.denominator
    raise ValueError(f"a loss scale of {factor} cannot be written into a trace")
