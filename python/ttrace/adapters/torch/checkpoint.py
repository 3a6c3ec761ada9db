"""Reentrant activation checkpointing: torch.utils.checkpoint with use_reentrant=True.

Its first forward runs without a graph, and in the backward the same forward runs again, with one:
the gradients of what is inside arrive at the second forward's tensors. That one belongs to the
micro-batch of the first, and its modules are called in the same order within the checkpointed
function, from the call on that they had reached before it.
"""

from __future__ import annotations

from typing import Any

from torch.utils import checkpoint

from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.patches import Patches
from ttrace.capture.placed import Position


class ReentrantCheckpoints:
    """Remembers, in the autograd context of each checkpoint, where its forward was."""

    def __init__(self, session: DeferredSession, patches: Patches) -> None:
        self._session = session
        owner = getattr(checkpoint, "CheckpointFunction", None)
        patches.wrap_static(owner, "forward", self._forward)
        patches.wrap_static(owner, "backward", self._backward)

    def _forward(self, original: Any, ctx: Any, *args: Any) -> Any:
        if self._session.moment is not None:
            ctx.ttrace_position = self._session.position()
        return original(ctx, *args)

    def _backward(self, original: Any, ctx: Any, *args: Any) -> Any:
        position: Position | None = getattr(ctx, "ttrace_position", None)
        if position is None or not self._session.recording:
            return original(ctx, *args)
        with self._session.recomputing(position):
            return original(ctx, *args)
