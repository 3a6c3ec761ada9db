"""Whether an iteration finds what the optimizer steps as the step before it left it.

Nothing but the step is expected to change weights, moments and counts. A script that does (it clips
weights, averages them, resets Adam) is compared with what the other run's does: how much of a
tensor changed is taken from a few of its values, because to keep all would double the state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from ttrace.capture.note_lines import in_lines
from ttrace.capture.parameter_store import Piece
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import digest_of, host_view

# Enough to tell what reaches a few values, as clipping does, from what reaches all.
_SAMPLE = 64

# What the model computes with in an iteration, among the names of states.
_USED = "used"
# A step that is taken and taken back (sharpness-aware training) leaves what rounding made of it:
# two roundings, each of half an ulp of the larger of both.
_ULPS = 4

# Parameter, state, and of a flat range where it begins.
Name = tuple[str, str, int]


def _name(arg: str, piece: Piece) -> Name:
    return piece.fqn, arg, -1 if piece.part is None else piece.part.begin


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Values at even distances; an odd one, so that columns of a matrix differ."""
    flat = tensor.detach().reshape(-1)
    return flat[:: flat.numel() // _SAMPLE | 1].clone()


@dataclass(frozen=True)
class _Left:
    content: Any
    sample: torch.Tensor


class KeptStates:
    """Of one process. Needs the memory of a few values of each tensor."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: dict[Name, _Left] = {}
        self._looked_at: set[str] = set()
        self._changed: dict[Name, dict[str, Any]] = {}

    def leave(self, arg: str, piece: Piece) -> None:
        """After a step."""
        kept = _Left(digest_of(piece.tensor), _sample(piece.tensor))
        self._left[_name(arg, piece)] = kept

    def is_left(self, arg: str, piece: Piece) -> bool:
        """Whether it is what the last captured step left."""
        before = self._left.get(_name(arg, piece))
        return before is not None and before.content == digest_of(piece.tensor)

    def find(self, arg: str, piece: Piece) -> bool:
        """The same, and what is not is remembered."""
        if _name(arg, piece) not in self._left:
            return False
        self._looked_at.add(arg)
        if self.is_left(arg, piece):
            return True
        name = _name(arg, piece)
        self._changed[name] = _change(self._left[name].sample, _sample(piece.tensor))
        return False

    def use(self, piece: Piece) -> None:
        """A weight, as an iteration begins to compute with it."""
        self.leave(_USED, piece)

    def find_used(self, piece: Piece) -> None:
        """The same weight where the iteration's step begins: what the step moves is what gradients
        were made with."""
        name = _name(_USED, piece)
        used = self._left.pop(name, None)
        if used is None:
            return
        self._looked_at.add(_USED)
        if used.content == digest_of(piece.tensor):
            return
        found = _sample(piece.tensor)
        if not _is_rounding(used.sample, found):
            self._changed[name] = _change(used.sample, found)

    def note(self) -> None:
        """Before the step of an iteration: what was found of all that a step has left."""
        if self._looked_at:
            changed = [
                {"fqn": fqn, "arg": arg, **change}
                for (fqn, arg, _), change in self._changed.items()
            ]
            for part in tuple(in_lines(changed)) or ([],):
                self._session.note(
                    "found_states",
                    iteration=self._session.iteration,
                    states=sorted(self._looked_at),
                    changed=part,
                )
        self._looked_at, self._changed = set(), {}


def _is_rounding(used: torch.Tensor, found: torch.Tensor) -> bool:
    if used.shape != found.shape or not used.is_floating_point():
        return False
    size = torch.maximum(used.abs().max(), found.abs().max())
    return bool((found - used).abs().max() <= _ULPS * torch.finfo(used.dtype).eps * size)


def _change(left: torch.Tensor, found: torch.Tensor) -> dict[str, Any]:
    """How many of the values differ, and the factor between them if there is one."""
    if left.shape != found.shape:
        return {"sampled": 0, "differs": 0}
    left, found = host_view(left).double(), host_view(found).double()
    change: dict[str, Any] = {"sampled": left.numel(), "differs": int((left != found).sum())}
    square = float(left @ left)
    if 0 < square < math.inf and torch.isfinite(found).all():
        factor = float(left @ found) / square
        change["factor"] = factor
        change["rest"] = float((found - factor * left).norm()) / square**0.5
    return change
