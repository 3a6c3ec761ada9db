"""Which runs of autograd send the gradient of a loss into the model.

`torch.autograd.grad` is part of what a loop or a model computes (forces from an energy, a gradient
penalty): its values are no gradients of a loss, and are not scaled like them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.capture import source_lines
from ttrace.capture.patches import Patches

_NOTICE = (
    "gradients that torch.autograd.grad computes are not recorded, only those of a loss (backward)"
)


class LossBackward:
    def __init__(
        self,
        session: LoopSession,
        patches: Patches,
        on_end: Callable[[], None],
        around: Callable[[Any, Any], AbstractContextManager[None]],
    ) -> None:
        """`on_end()` is called after each, with what it has left in the gradients. Each runs inside
        `around(args, kwargs)`."""
        self._session = session
        self._on_end = session.guarded(on_end)
        self._note_caller = session.guarded(source_lines.note_caller)
        self._inside = around
        self._depth = 0  # reentrant checkpoints call it within a backward
        # What Tensor.backward calls, and others directly.
        patches.wrap_static(torch.autograd, "backward", self._around)

    def _around(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._depth += 1
        if self._depth == 1 and self._session.recording:
            self._note_caller(self._session, "backward")
        try:
            if self._depth > 1:
                return original(*args, **kwargs)
            with self._inside(args, kwargs):
                return original(*args, **kwargs)
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._on_end()

    @property
    def is_running(self) -> bool:
        return self._depth > 0

    def runs(self) -> bool:
        """To be asked where a gradient arrives. Says once that it is none of a loss."""
        if self._depth == 0 and self._session.recording and self._session.once(_NOTICE):
            self._session.note("notice", text=_NOTICE)
        return self._depth > 0
