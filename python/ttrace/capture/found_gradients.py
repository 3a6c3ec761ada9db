"""Whether gradients are empty when an iteration's first backward adds to them.

What an earlier backward left there is a fault of the loop (`zero_grad` is missing, or does not
reach them) that no single iteration shows: its own terms are right.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ttrace.capture.note_lines import in_lines
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import on_host


def what_it_holds(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Its norm, on its device, which nothing waits for; None: there is no gradient, or none of
    which that can be told. Of all that torch has, a norm goes through memory at its pace; squares
    that vanish are of no account."""
    if gradient is None or gradient.layout is not torch.strided:
        return None
    if not gradient.is_floating_point():
        return None
    wide = torch.float32 if gradient.dtype.itemsize < 4 else None
    return torch.linalg.vector_norm(gradient.detach(), dtype=wide)


def note_found_gradients(session: Session, found: Mapping[str, torch.Tensor | None]) -> None:
    """`found`: by parameter, what `what_it_holds` gave. Once an iteration."""
    if not found:
        return
    there = {fqn: value for fqn, value in found.items() if value is not None}
    values = on_host(list(there.values()))
    kept = [fqn for fqn, value in zip(there, values, strict=True) if float(value) != 0]
    for part in tuple(in_lines(kept)) or ([],):
        session.note(
            "found_gradients",
            iteration=session.iteration,
            parameters=len(found),
            kept=part,
        )
