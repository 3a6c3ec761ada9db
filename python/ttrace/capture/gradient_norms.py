"""What torch's own primitive gives for the norm of each reduced gradient, as it lies on its rank.

The norm that an optimizer reports is made of these. They are not exact: torch adds up squares in
fp32 and loses 2e-4 of 8e6 elements on a CPU, other amounts of other shards. The check compares the
reported norm with what these add up to, so that a library's rounding is not taken for a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import on_host

_NAMES_PER_NOTE = 500  # a line of the index is at most 1 MiB


def note_norms(
    session: Session, iteration: int, gradients: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Of the real leg's gradients, by canonical name, each as the optimizer finds it."""
    if session.leg != "real" or not session.recording:
        return
    found = {
        fqn: torch.linalg.vector_norm(gradient.detach())
        for fqn, gradient in gradients
        if gradient.layout is torch.strided and gradient.is_floating_point()
    }
    norms = dict(zip(found, map(float, on_host(list(found.values()))), strict=True))
    names = [fqn for fqn, norm in norms.items() if math.isfinite(norm)]  # as JSON has numbers
    for begin in range(0, len(names), _NAMES_PER_NOTE):
        part = {fqn: norms[fqn] for fqn in names[begin : begin + _NAMES_PER_NOTE]}
        session.note("gradient_norms", iteration=iteration, norms=part)
