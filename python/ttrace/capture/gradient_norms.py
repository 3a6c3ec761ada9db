"""What torch's own primitive gives for the norm of each reduced gradient, as it lies on its rank.

The norm that an optimizer reports is made of these. They are not exact: torch adds up squares in
fp32 and loses 2e-4 of 8e6 elements on a CPU, other amounts of other shards, and rounds the norm of
a bfloat16 gradient to bfloat16. The check compares the reported norm with what these add up to, so
that a library's rounding is not taken for a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from ttrace.capture.note_lines import in_lines
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import on_host


def note_norms(
    session: Session, iteration: int, gradients: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Of the real leg's gradients, by canonical name, each as the optimizer finds it."""
    if session.leg != "real" or not session.recording:
        return
    found = {
        fqn: gradient.detach()
        for fqn, gradient in gradients
        if gradient.layout is torch.strided and gradient.is_floating_point()
    }
    # An optimizer that has fp32 copies takes the norm of those, a loop that of what it has.
    low = {fqn: None for fqn, gradient in found.items() if gradient.dtype.itemsize < 4}
    norms = _on_host({fqn: _norm(g.float() if fqn in low else g) for fqn, g in found.items()})
    rounded = _on_host({fqn: _norm(found[fqn]) for fqn in low})
    names = [fqn for fqn, norm in norms.items() if math.isfinite(norm)]  # as JSON has numbers
    for part in in_lines(names):
        said = {"norms": {fqn: norms[fqn] for fqn in part}}
        own = {fqn: rounded[fqn] for fqn in part if math.isfinite(rounded.get(fqn, math.inf))}
        if own:
            said["rounded"] = own
        session.note("gradient_norms", iteration=iteration, **said)


_norm = torch.linalg.vector_norm


def _on_host(norms: dict[str, torch.Tensor]) -> dict[str, float]:
    return dict(zip(norms, map(float, on_host(list(norms.values()))), strict=True))
