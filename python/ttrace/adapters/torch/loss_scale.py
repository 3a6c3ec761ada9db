"""The loss scale of torch.amp.GradScaler, and the steps that it skips.

Gradients are then a power of two times what they mean, from `scaler.scale(loss)` on until
`scaler.unscale_(optimizer)` has divided those of the parameters. If one of them has overflowed,
`scaler.step(optimizer)` does not call the optimizer, whose own hooks see nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch

from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.capture.patches import Patches

_LARGEST = 2**52  # beside it, room for the number of ranks in 64 bits
_WAY_OUT = "set GradScaler's init_scale to a power of two below 2**52"
_UNKNOWN_STATE = (
    "torch.amp.GradScaler of this version of torch",
    "whether gradients were unscaled before the step cannot be told",
    "compare runs without a GradScaler",
)


class LossScale:
    """All scalers of the process."""

    def __init__(
        self,
        session: LoopSession,
        patches: Patches,
        optimizers: Sequence[Any],
        before_step: Callable[[Any], None],
        skipped: Callable[[Any], None],
    ) -> None:
        """`before_step` is called for an optimizer that a scaler steps, and `skipped` for one that
        makes no step because its gradients overflowed."""
        self._session = session
        self._optimizers = optimizers
        self._before_step = before_step
        self._skipped = skipped
        self._scaler: Any = None
        self._in_step: Any = None  # the optimizer that a scaler is about to step
        guarded = session.guarded
        owner = getattr(torch.amp, "GradScaler", None)
        patches.wrap_call(owner, "scale", guarded(self._scale))
        patches.wrap_call(owner, "step", guarded(self._step_begins))
        patches.wrap_result(owner, "step", self._step_ends)

    def unscaled(self, optimizer: Any) -> bool:
        """Whether gradients have been divided by the scale."""
        if self._scaler is None:
            return True
        for one in [optimizer] if optimizer is not None else self._optimizers:
            if getattr(one, "grad_scale", None) is not None:
                return False  # a fused optimizer does it by itself
            states = getattr(self._scaler, "_per_optimizer_states", None)
            if states is None:
                self._session.unsupported(*_UNKNOWN_STATE)
                return False
            state = states.get(id(plain(one)))
            if state is None or state["stage"].name == "READY":
                return False
        return True

    def stepped(self, optimizer: Any) -> None:
        if self._in_step is not None and plain(optimizer) is plain(self._in_step):
            self._in_step = None

    def _scale(self, scaler: Any, outputs: Any, *_: Any) -> None:
        if not scaler.is_enabled():
            return
        self._scaler = scaler
        if not self._session.due:
            return
        value = scaler.get_scale()
        factor = Fraction(value)
        session = self._session
        if max(factor.numerator, factor.denominator) > _LARGEST:
            what = f"a loss scale of {value:g}"
            session.unsupported(what, "gradients cannot be brought back to their size", _WAY_OUT)
            return
        session.now.scale_loss((factor.denominator, factor.numerator), session.topology)
        if session.recording and session.once("loss scale", str(session.iteration)):
            session.note("loss_scale", iteration=session.iteration, scale=value)

    def _mine(self, optimizer: Any) -> Any:
        return next((one for one in self._optimizers if plain(one) is plain(optimizer)), None)

    def _step_begins(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        mine = self._mine(optimizer)
        if not scaler.is_enabled() or mine is None:
            return
        self._in_step = mine
        # If it is skipped, nothing else will read the gradients.
        self._before_step(mine)

    def _step_ends(self, scaler: Any, result: Any) -> Any:
        optimizer, self._in_step = self._in_step, None
        if optimizer is not None:
            self._session.guarded(self._skipped)(optimizer)
        return result


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def plain(optimizer: Any) -> Any:
    """accelerate's optimizers have torch's inside."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer
