"""Faults of how gradients are clipped before a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from mutation.loops.loop import Batch, PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions

_CLIPPED = ("grad_norm", "param_updated", "optim_state")


def _clips(options: LoopOptions) -> bool:
    return options.clip > 0


def _clip(loop: PlainLoop, draw: Draw, faulty: Callable[[], object]) -> Sequence[str]:
    right = loop.clip
    loop.clip = lambda: faulty() if draw.active else right()  # type: ignore
    return ["*"]


@fault("clip skipped", _clips, _CLIPPED, "GH")
def unclipped(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients are not clipped."""
    return _clip(loop, draw, lambda: None)


@fault("clip norm", _clips, _CLIPPED, "GH")
def other_norm(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """They are clipped to another norm."""
    limit = loop.options.clip * (1 + draw.mutant.size)

    def clip() -> None:
        if loop.scaler is not None:
            loop.scaler.unscale_(loop.optimizer)
        nn.utils.clip_grad_norm_(loop.net.parameters(), limit)

    return _clip(loop, draw, clip)


@fault("clip each", _clips, _CLIPPED, "GHK")
def each_alone(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Each parameter by its own norm."""

    def clip() -> None:
        if loop.scaler is not None:
            loop.scaler.unscale_(loop.optimizer)
        for parameter in loop.net.parameters():
            nn.utils.clip_grad_norm_([parameter], loop.options.clip)

    return _clip(loop, draw, clip)


@fault("clip micro-batches", lambda o: _clips(o) and o.accumulate > 1 and o.precision != "fp16",
       ("grad_local", "grad_reduced", *_CLIPPED), "HGPS")  # fmt: skip
def after_each(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """After each micro-batch, each rank its own gradients."""
    right = loop.micro_batch

    def micro_batch(number: int, batch: Batch) -> None:
        right(number, batch)
        if draw.active:
            loop.clip()

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["*"]


@fault("clip scaled", lambda o: _clips(o) and o.precision == "fp16", _CLIPPED, "GHK")
def before_unscaling(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients are clipped while they still have the scale of the loss."""
    limit = loop.options.clip
    return _clip(loop, draw, lambda: nn.utils.clip_grad_norm_(loop.net.parameters(), limit))
