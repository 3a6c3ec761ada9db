"""Clipping in a plain torch loop, by torch's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ttrace.adapters.torch.dtensors import is_dtensor, local_tensor
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.store import Store
from ttrace.capture.patches import Patches
from ttrace.capture.placed import Scale


class Clipping:
    """Gradients are read before clip_grad_norm_ changes them, and the norm that it finds."""

    def __init__(
        self,
        session: LoopSession,
        patches: Patches,
        backward_done: Callable[[Iterable[torch.Tensor] | None], Store | None],
        changed: Callable[[], None],
        on_norm: Callable[[torch.Tensor, Scale], None],
    ) -> None:
        """`backward_done(of)` records the gradients of these parameters, or of all, and gives where
        they are, or None. `changed()` is called when they were clipped. `on_norm` is told the norm
        of all gradients."""
        self._session = session
        self._backward_done = backward_done
        self._changed = changed
        self._on_norm = on_norm
        self._norm_type = 2.0
        for owner in (clip_grad, nn.utils):
            patches.wrap_call(owner, "clip_grad_value_", session.guarded(self._clip_values))
            patches.wrap_result(owner, "clip_grad_value_", self._clipped)
        # What clip_grad_norm_ itself calls, so that copies of its name do not matter; and the names
        # of the same that a loop calls which takes the norm by itself.
        for owner, norm, clip in (
            (clip_grad, "_get_total_norm", "_clip_grads_with_norm_"),
            (nn.utils, "get_total_norm", "clip_grads_with_norm_"),
        ):
            if hasattr(owner, norm) and hasattr(owner, clip):
                patches.wrap_call(owner, norm, session.guarded(self._norm_of))
                patches.wrap_call(owner, clip, session.guarded(self._clip))
                patches.wrap_result(owner, clip, self._clipped)

    def _clip_values(self, tensors: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
        if self._session.due and not self._session.now.is_empty:
            self._session.now.clipping.looked_at = True
            self._session.now.clipping.limit("clip_grad_value", clip_value)

    def _clipped(self, tensors: Any, result: Any) -> Any:
        self._session.guarded(self._changed)()
        return result

    def _norm_of(self, tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> None:
        self._norm_type = float(norm_type)
        if not self._session.now.is_empty:
            self._session.now.clipping.looked_at = True

    def _clip(
        self, tensors: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any
    ) -> None:
        if self._session.now.is_empty:
            return  # of another loop of this process, between two iterations of this one
        several = [tensors] if torch.is_tensor(tensors) else tensors
        if not isinstance(several, list | tuple):
            several = None  # reading it would use it up
        session, store = self._session, self._backward_done(several)
        if store is None:
            return
        seen = session.now.clipping
        seen.looked_at = True
        # Of what gradients mean: a limit on those that still have the scale of the loss is another.
        numerator, denominator = session.now.gradients.reduced_scale
        seen.clip(max_norm * numerator / denominator, self._norm_type)
        norm = total_norm
        if is_dtensor(norm):
            norm = local_tensor(norm) if all(p.is_replicate() for p in norm.placements) else None
        if norm is not None:
            seen.norm(norm, max_norm)
        if several is None or self._norm_type != 2.0 or seen.has_norm:
            return  # a second one is of gradients that were clipped, or of more than were recorded
        if not store.are(several):
            return
        seen.take_norm()
        if norm is None:
            session.not_observed("grad_norm", "", "a norm whose reduction is pending")
            return
        self._on_norm(norm, session.now.gradients.reduced_scale)
