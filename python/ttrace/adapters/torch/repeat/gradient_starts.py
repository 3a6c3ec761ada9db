"""What lies in the gradients when a backward begins, so that it can begin so once more.

Loops clear them in many ways and at any time before the backward; what counts is what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ttrace.adapters.torch.dtensors import held_tensor
from ttrace.adapters.torch.seen_gradients import Seen
from ttrace.capture.tensor_bytes import on_host

# Of a leaf: None (it has none), zeros, as the backward before has left it, or these values.
ABSENT, ZEROS, LEFT = "absent", "zeros", "left"
Start = str | torch.Tensor


class GradientStarts:
    """Of the backwards of one iteration."""

    def __init__(self) -> None:
        self._left: dict[int, Seen | None] | None = None  # by the last backward

    def look(
        self, leaves: Mapping[int, torch.Tensor], is_followed: Callable[[torch.Tensor], bool]
    ) -> tuple[dict[int, Start], str]:
        """Before a backward. Returns what each leaf's gradient holds, by the leaf's id, and why
        that cannot be made again, or nothing. `is_followed(gradient)`: whether what was done to it
        is known."""
        starts: dict[int, Start] = {}
        changed: list[tuple[int, Any]] = []
        for key, leaf in leaves.items():
            gradient = leaf.grad
            if gradient is None:
                starts[key] = ABSENT
            elif self._left is not None and _is(self._left.get(key), gradient):
                starts[key] = LEFT
            else:
                changed.append((key, gradient))
        norms = on_host([_largest(gradient) for _, gradient in changed])
        for (key, gradient), norm in zip(changed, norms, strict=True):
            if norm == 0:
                starts[key] = ZEROS
            elif self._left is None:
                starts[key] = gradient.detach().clone()
            elif is_followed(gradient):
                starts[key] = LEFT
            else:
                return starts, "the loop puts gradients of its own in place of those of a backward"
        return starts, ""

    def left(self, leaves: Iterable[tuple[int, torch.Tensor]]) -> None:
        """After a backward."""
        self._left = {
            key: None if leaf.grad is None else Seen(leaf.grad, shares_count=False)
            for key, leaf in leaves
        }


def _is(seen: Seen | None, gradient: Any) -> bool:
    return seen is not None and not seen.differs_from(gradient)


def _largest(gradient: Any) -> torch.Tensor:
    local = held_tensor(gradient)
    if local.layout is not torch.strided:
        local = local.coalesce().values()
    return torch.linalg.vector_norm(local.detach(), torch.inf).float()


def set_start(leaf: torch.Tensor, start: Start) -> None:
    """What the backward before it has left stays."""
    if start is ABSENT:
        leaf.grad = None
    elif torch.is_tensor(start):
        leaf.grad = start.clone()
    elif start is ZEROS:
        if leaf.grad is None:
            leaf.grad = torch.zeros_like(leaf)
        else:
            leaf.grad.zero_()
