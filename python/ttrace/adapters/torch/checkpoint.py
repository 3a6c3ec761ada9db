"""Activation checkpointing: torch.utils.checkpoint.

Reentrant (use_reentrant=True), the first forward runs without a graph, and in the backward the same
forward runs again, with one: the gradients of what is inside arrive at the second forward's
tensors. That one belongs to the micro-batch of the first, and its modules are called in the same
order within the checkpointed function, from the call on that they had reached before it.

Otherwise they arrive at the first forward's tensors, and the second one merely makes again what the
backward needs. It is not observed, and in it no module is given the reference's values: what the
backward of a module inside computes would not be isolated. An isolated leg that runs in the loop's
own process therefore keeps what its forward made, without a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils import checkpoint

from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.capture.patches import Patches
from ttrace.capture.placed import Position


class Checkpoints:
    """Remembers, in the autograd context of each reentrant checkpoint, where its forward was, and
    says while the forward of another one runs."""

    def __init__(self, session: LoopSession, patches: Patches) -> None:
        self._session = session
        self._depth = 0
        patches.wrap_static(
            checkpoint, "_checkpoint_without_reentrant_generator", self._without_reentrant
        )
        owner = getattr(checkpoint, "CheckpointFunction", None)
        patches.wrap_static(owner, "forward", self._forward)
        patches.wrap_static(owner, "backward", self._backward)

    @property
    def _is_left_out(self) -> bool:
        return not self._session.now.is_real and "isolated" in self._session.leg.split(".")

    def inside(self) -> bool:
        """Whether the forward that runs is inside of one, but for reentrant ones."""
        return self._depth > 0

    def _without_reentrant(self, original: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        """The function runs where the generator yields."""
        if self._is_left_out:
            yield
            return
        steps = original(*args, **kwargs)
        next(steps)
        self._depth += 1
        try:
            yield
        except BaseException as error:
            # The function failed: torch leaves its own contexts before the caller handles that.
            steps.throw(error)
            raise
        finally:
            self._depth -= 1
        yield from steps

    def _forward(self, original: Any, ctx: Any, *args: Any) -> Any:
        if self._session.moment is not None:
            ctx.ttrace_position = self._session.now.position()
        return original(ctx, *args)

    def _backward(self, original: Any, ctx: Any, *args: Any) -> Any:
        position: Position | None = getattr(ctx, "ttrace_position", None)
        if position is None or not self._session.recording:
            return original(ctx, *args)
        with self._session.now.recomputing(position):
            return original(ctx, *args)
