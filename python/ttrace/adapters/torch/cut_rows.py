"""Sequence and context parallelism by hand: data-parallel ranks that hold parts of the same rows.

DistributedDataParallel says that each rank has rows of its own, and so does a loop that reduces its
gradients itself, as far as that goes. What gives a cut away is what the forward sends among these
ranks. Statistics and counts are reduced, and what is gathered of a batch (embeddings for a
contrastive loss, statistics of a normalisation) is put together along the rows: both leave each
rank with rows of its own. Positions of a row are passed on from rank to rank, exchanged, or put
together along another dimension than the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.capture import nested
from ttrace.capture.collective_calls import Call

WHAT = "a cut of rows among data-parallel ranks"
_REASON = (
    "which nothing else says: ranks hold parts of the same rows (sequence or context parallelism by"
    " hand), or of what is made of them"
)
_WAY_OUT = "compare the run without the cut, or say by DTensors how tensors lie"
_SUMS = ("all_reduce", "reduce_scatter")
_EXCHANGED = ("send", "recv", "all_to_all")

Shape = Callable[[str], Sequence[int]]  # of an argument of the model in the reference, or nothing


class CutRows:
    """What the forwards of one data-parallel model send among `ranks`."""

    def __init__(self, session: LoopSession, ranks: Iterable[int], wrapped: bool = True) -> None:
        """`wrapped`: by something that says so. Without it each rank may hold a part of the
        modules, and sum what these make."""
        self._session = session
        self._sums_are_cuts = not wrapped
        self._ranks = frozenset(ranks)
        self._rows = 0  # of the forward that runs
        self._is_part = False  # whether an input looks like a part of the reference's rows
        # In this forward, by functions that have a gradient: by which, how many dimensions, within
        # which module.
        self._gathered: list[tuple[Any, int, str]] = []

    def begin(self, rows: int, arguments: Mapping[str, Any], shape: Shape | None) -> None:
        """A forward, of the model with these arguments."""
        self._rows = rows
        self._gathered.clear()
        self._is_part = shape is not None and any(
            _is_part(value.shape, shape(name), len(self._ranks))
            for name, value in arguments.items()
            if torch.is_tensor(value)
        )

    def heard(self, call: Call, fqn: str) -> None:
        """A collective within a forward."""
        among_these = len(call.members) > 1 and self._ranks.issuperset(call.members)
        if not among_these or self._session.has_seen(WHAT):
            return
        for tensor in call.tensors:
            if not tensor.is_floating_point() or tensor.dim() < 2:
                continue  # numbers of rows, statistics
            if call.kind in _EXCHANGED:
                self._say(fqn, f"exchanges tensors ({call.kind})")
            elif call.kind in _SUMS and self._sums_are_cuts and tensor.shape[0] == self._rows:
                self._say(fqn, f"sums tensors of its rows over ranks ({call.kind})")
            elif call.kind != "all_gather" or tensor.shape[0] != self._rows:
                continue
            elif call.dim is not None and call.dim % tensor.dim() != 0:
                self._say(fqn, f"gathers tensors along dimension {call.dim}")
            elif self._is_part:
                self._say(fqn, "gathers tensors, and its inputs are parts of the reference's")
            elif (function := _running_function()) is not None:
                self._gathered.append((function, tensor.dim(), fqn))

    def end(self, output: Any) -> None:
        """After the forward: what it gathered may have been put together along any dimension."""
        gathered, self._gathered = self._gathered, []
        if not gathered or self._session.has_seen(WHAT):
            return
        dims = _put_together(value for _, value in nested.outputs(output))
        for function, count, fqn in gathered:
            for dim in dims.get(function, ()):
                if dim % count != 0:
                    self._say(fqn, f"gathers tensors along dimension {dim}")

    def _say(self, fqn: str, does: str) -> None:
        reason = f"{fqn or 'the model'} {does} in its forward, {_REASON}"
        self._session.unsupported(WHAT, reason, _WAY_OUT)


def _is_part(shape: torch.Size, whole: Sequence[int], ranks: int) -> bool:
    """Whether as many rows as the reference has in all are shorter by a factor of `ranks`. So are
    inputs whose batch is another dimension: this alone tells nothing."""
    if len(shape) != len(whole) or len(shape) < 2 or shape[0] != whole[0]:
        return False
    cut = [d for d in range(1, len(shape)) if shape[d] != whole[d]]
    return len(cut) == 1 and shape[cut[0]] * ranks == whole[cut[0]]


def _running_function() -> Any | None:
    """The autograd function, torch's own or the user's, whose forward calls this; it is a node of
    the graph afterwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_argcount > 0:
            first = frame.f_locals.get(frame.f_code.co_varnames[0])
            if isinstance(first, BackwardCFunction):
                return first
        frame = frame.f_back
    return None


def _put_together(values: Iterable[torch.Tensor]) -> dict[Any, set[int]]:
    """The functions of which all results are put together again, and along which dimensions."""
    waiting = [value.grad_fn for value in values if value.grad_fn is not None]
    seen, found = set(waiting), {}
    while waiting:
        node = waiting.pop()
        makers = {after for after, _ in node.next_functions}
        if node.name().startswith("CatBackward") and len(makers) == 1:
            dim = getattr(node, "_saved_dim", None)  # of another torch it may have another name
            if isinstance(dim, int):
                dim = dim - 2**64 if dim >= 2**63 else dim  # a negative one, kept without its sign
                found.setdefault(next(iter(makers)), set()).add(dim)
        for after in makers - seen - {None}:
            seen.add(after)
            waiting.append(after)
    return found
