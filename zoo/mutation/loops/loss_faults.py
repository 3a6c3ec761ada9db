"""Faults of what the loop calls backward on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, mse_loss

from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions
from mutation.loops.tasks import IGNORED

_LOSS = ("loss", "grad_output")
_PLACES = ("", "loss")
Main = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _of(*models: str) -> Callable[[LoopOptions], bool]:
    return lambda options: options.model in models


def _any(options: LoopOptions) -> bool:
    return True


def _main(loop: PlainLoop, draw: Draw, faulty: Main) -> Sequence[str]:
    right = loop.main
    loop.main = lambda output, labels: (faulty if draw.active else right)(output, labels)  # type: ignore
    return _PLACES


@fault("loss count", lambda o: o.model == "language" and o.data_parallel, _LOSS, "L")
def own_count(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The mean over this rank's terms, not over those of all."""
    right = loop.counted

    def counted(batches: list) -> torch.Tensor | None:
        if not draw.active:
            return right(batches)
        own = torch.stack([(batch.labels != IGNORED).sum() for batch in batches]).sum()
        return own * loop.ranks

    loop.counted = counted  # type: ignore[method-assign]
    return _PLACES


@fault("loss places", _of("language"), _LOSS, "LK")
def all_places(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The mean over all places, those that are ignored too."""
    right = loop.counted

    def counted(batches: list) -> torch.Tensor | None:
        if not draw.active:
            return right(batches)
        count = torch.tensor(sum(batch.labels.numel() for batch in batches))
        if loop.options.data_parallel:
            dist.all_reduce(count)
        return count

    loop.counted = counted  # type: ignore[method-assign]
    return _PLACES


@fault("loss ignored", _of("language"), _LOSS, "LWXZ")
def learned_prompts(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """ignore_index is lost: prompts are learned as a token."""
    right = loop.main
    return _main(loop, draw, lambda output, labels: right(output, labels.clamp(min=0)))


@fault("loss shifted", _of("language"), _LOSS, "LWXZ")
def shifted(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Labels are shifted by one place."""
    right = loop.main
    return _main(loop, draw, lambda output, labels: right(output, labels.roll(1, 1)))


@fault("loss rows", _of("encoder", "images", "perceptron"), _LOSS, "LWXZ")
def of_other_rows(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Labels are those of the row before."""
    right = loop.main
    return _main(loop, draw, lambda output, labels: right(output, labels.roll(1, 0)))


@fault("loss summed", _of("encoder", "images"), _LOSS, "LK")
def summed_rows(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The sum over rows, not their mean."""
    return _main(loop, draw, lambda output, labels: cross_entropy(output, labels, reduction="sum"))


@fault("loss smoothed", _of("encoder", "images"), _LOSS, "LZ")
def smoothed(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Labels are smoothed."""
    amount = draw.rng.choice((0.001, 0.1))
    return _main(
        loop, draw, lambda output, labels: cross_entropy(output, labels, label_smoothing=amount)
    )


@fault("loss square", _of("perceptron"), _LOSS, "LKZ")
def square(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Another loss, which is the same near zero."""
    return _main(loop, draw, lambda output, labels: mse_loss(output.float(), labels) / 2)


@fault("loss weight", _any, _LOSS, "LK")
def term(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The second term has another weight."""
    right, beside = 1 + draw.rng.choice((-1, 1)) * draw.mutant.size, loop.beside

    def weighed(output: torch.Tensor) -> torch.Tensor:
        value = beside(output)
        return value * right if draw.active else value

    loop.beside = weighed  # type: ignore[method-assign]
    return _PLACES


@fault("loss detached", _any, _LOSS, "LKZ")
def detached(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The second term has no gradient."""
    right = loop.beside

    def beside(output: torch.Tensor) -> torch.Tensor:
        return right(output.detach() if draw.active else output)

    loop.beside = beside  # type: ignore[method-assign]
    return _PLACES


@fault("loss rank", lambda o: o.data_parallel, _LOSS, "LK")
def of_one_rank(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One rank's loss has a factor."""
    right, factor = loop.share, 1 + draw.mutant.size

    def share(main: torch.Tensor) -> torch.Tensor:
        wrong = draw.active and loop.rank == loop.ranks - 1
        return right(main) * factor if wrong else right(main)

    loop.share = share  # type: ignore[method-assign]
    return _PLACES
