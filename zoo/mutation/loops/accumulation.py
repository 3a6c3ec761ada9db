"""Faults of a step that is made of several micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.parallel import DistributedDataParallel

from mutation.loops.loop import Batch, PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions

_LOSS = ("loss", "grad_output")
_GRADIENTS = ("grad_local", "grad_reduced")


def _several(options: LoopOptions) -> bool:
    return options.accumulate > 1


def _means(options: LoopOptions) -> bool:
    """Where losses are divided by the number of micro-batches."""
    return _several(options) and options.model != "language"


@fault("accumulation divisor", _means, _LOSS, "LK")
def divisor(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The loss is divided by another number of micro-batches."""
    right, count = loop.share, loop.options.accumulate
    by = draw.rng.choice((1, count + 1))
    loop.share = lambda main: main / by if draw.active else right(main)  # type: ignore
    return ["", "loss"]


@fault("accumulation last", _means, _LOSS, "LK")
def last_undivided(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The last micro-batch's loss is not divided."""
    right, share = loop.micro_batch, loop.share
    undivided = False
    loop.share = lambda main: main if undivided else share(main)  # type: ignore

    def micro_batch(number: int, batch: Batch) -> None:
        nonlocal undivided
        undivided = draw.active and number == loop.options.accumulate - 1
        right(number, batch)

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["", "loss"]


def _drawn_number(loop: PlainLoop, draw: Draw) -> int:
    """The last one is what reduces gradients."""
    return draw.rng.randrange(loop.options.accumulate - 1)


@fault("accumulation dropped", _several, (*_LOSS, *_GRADIENTS), "SPL", one=True)
def dropped(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A micro-batch's loss has no backward."""
    right, number = loop.backward, _drawn_number(loop, draw)
    begins = loop.micro_batch
    now = -1

    def micro_batch(which: int, batch: Batch) -> None:
        nonlocal now
        now = which
        begins(which, batch)

    def backward(loss: torch.Tensor) -> None:
        if not (draw.here and now == number):
            right(loss)

    loop.micro_batch, loop.backward = micro_batch, backward  # type: ignore[method-assign]
    return ["*"]


@fault("accumulation twice", _several, (*_LOSS, *_GRADIENTS), "SLKP", one=True)
def twice(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A micro-batch is counted twice."""
    right, number = loop.micro_batch, _drawn_number(loop, draw)

    def micro_batch(which: int, batch: Batch) -> None:
        right(which, batch)
        if draw.here and which == number:
            right(which, batch)

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["*"]


@fault("accumulation repeated", _several, ("data", "input", *_LOSS, *_GRADIENTS), "ZSXW", one=True)
def repeated(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One micro-batch in the place of the one after it: a batch that is not fetched."""
    right = loop.micro_batch
    kept: list[Batch] = []
    number = _drawn_number(loop, draw)

    def micro_batch(which: int, batch: Batch) -> None:
        if which == number:
            kept[:] = [batch]
        right(which, kept[0] if draw.here and which == number + 1 else batch)

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["*"]


@fault("accumulation uncleared", lambda o: True, _GRADIENTS, "S")
def uncleared(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients are not emptied before the iterations with the fault."""
    right = loop.clear

    def clear() -> None:
        if loop.iteration + 1 < max(draw.mutant.since, 1):
            right()

    loop.clear = clear  # type: ignore[method-assign]
    return ["*"]


@fault("accumulation cleared", _several, _GRADIENTS, "SP")
def cleared(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients are emptied before the last micro-batch."""
    right = loop.micro_batch

    def micro_batch(number: int, batch: Batch) -> None:
        if draw.active and number == loop.options.accumulate - 1:
            loop.optimizer.zero_grad()
        right(number, batch)

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["*"]


@fault("accumulation own", lambda o: _several(o) and o.data_parallel, _GRADIENTS, "PR")
def own_sums(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Micro-batches but the last are accumulated apart, and added when that has been reduced."""
    right, model = loop.micro_batch, loop.model
    assert isinstance(model, DistributedDataParallel)
    kept: list[torch.Tensor | None] = []

    def micro_batch(number: int, batch: Batch) -> None:
        last = number == loop.options.accumulate - 1
        own = list(loop.net.parameters())
        if draw.active and last:
            kept[:] = [p.grad for p in own]
            for parameter in own:
                parameter.grad = None
        right(number, batch)
        if draw.active and last:
            with torch.no_grad():
                for parameter, before in zip(own, kept, strict=True):
                    if before is not None and parameter.grad is not None:
                        parameter.grad.add_(before)

    loop.micro_batch = micro_batch  # type: ignore[method-assign]
    return ["*"]
