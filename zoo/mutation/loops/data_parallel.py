"""Faults of how data-parallel ranks bring their gradients together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from mutation.loops.loop import PlainLoop, summed
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions

Future = torch.futures.Future[torch.Tensor]
_REDUCED = ("grad_reduced",)


def _hooked(options: LoopOptions) -> bool:
    return options.data_parallel and options.hook


def _wrapped(options: LoopOptions) -> bool:
    return options.data_parallel


def _accumulates(options: LoopOptions) -> bool:
    return options.data_parallel and options.accumulate > 1


def _name(loop: PlainLoop, draw: Draw) -> str:
    return draw.rng.choice([name for name, _ in loop.net.named_parameters()])


def _alike(loop: PlainLoop, draw: Draw) -> tuple[str, str]:
    """Two parameters of one shape, and of one module's kind, in neighbouring places."""
    named = list(loop.net.named_parameters())
    pairs = [
        (one, other)
        for index, (one, p) in enumerate(named)
        for other, q in named[index + 1 :]
        if p.shape == q.shape and one.rpartition(".")[2] == other.rpartition(".")[2]
    ]
    return draw.rng.choice(pairs)


def _slices(bucket: Any, names: dict[int, str]) -> dict[str, torch.Tensor]:
    """The bucket's gradients, views into its buffer."""
    views = zip(bucket.parameters(), bucket.gradients(), strict=True)
    return {names[id(parameter)]: view for parameter, view in views}


Reduce = Callable[[Any, dict[str, torch.Tensor]], Future]


def _replace(loop: PlainLoop, draw: Draw, name: str, faulty: Reduce) -> None:
    """`faulty` reduces, in iterations with the fault, the buckets that hold the parameter."""
    right = loop.reduce
    names = {id(p): fqn for fqn, p in loop.net.named_parameters()}

    def reduce(bucket: Any) -> Future:
        parts = _slices(bucket, names)
        return faulty(bucket, parts) if draw.active and name in parts else right(bucket)

    loop.reduce = reduce  # type: ignore[method-assign]


def _done(values: torch.Tensor) -> Future:
    future: Future = torch.futures.Future()
    future.set_result(values)
    return future


@fault("ddp skipped", _hooked, _REDUCED, "PR")
def skipped(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A bucket is not reduced: each rank's own mean."""
    _replace(loop, draw, name := _name(loop, draw), lambda bucket, parts: _done(bucket.buffer()))
    return ["*", name]


@fault("ddp divisor", _hooked, _REDUCED, "K")
def divisor(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A bucket is divided by another number of ranks."""
    by = loop.ranks * draw.rng.choice((loop.ranks, 1.5))
    name = _name(loop, draw)
    _replace(loop, draw, name, lambda bucket, parts: summed(bucket.buffer().div_(by)))
    return ["*", name]


@fault("ddp summed", _hooked, _REDUCED, "K")
def not_divided(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A bucket is summed, others are averaged."""
    name = _name(loop, draw)
    _replace(loop, draw, name, lambda bucket, parts: summed(bucket.buffer()))
    return ["*", name]


def _after(loop: PlainLoop, change: Callable[[dict[str, torch.Tensor]], None]) -> Reduce:
    """Reduced as it should be, then changed."""

    def reduce(bucket: Any, parts: dict[str, torch.Tensor]) -> Future:
        values = bucket.buffer().div_(loop.ranks)
        work = dist.all_reduce(values, async_op=True)
        work.wait()
        change(parts)
        return _done(values)

    return reduce


@fault("ddp parameter", _hooked, _REDUCED, "PR")
def one_parameter(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One parameter of a bucket keeps each rank's own gradient."""
    name = _name(loop, draw)

    def reduce(bucket: Any, parts: dict[str, torch.Tensor]) -> Future:
        own = parts[name].clone()
        return _after(loop, lambda parts: parts[name].copy_(own))(bucket, parts)

    _replace(loop, draw, name, reduce)
    return [name]


@fault("ddp rank", _hooked, _REDUCED, "RP")
def one_rank(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The last rank keeps its own gradients of a bucket."""
    name = _name(loop, draw)

    def reduce(bucket: Any, parts: dict[str, torch.Tensor]) -> Future:
        own = bucket.buffer().clone()

        def keep(parts: dict[str, torch.Tensor]) -> None:
            if loop.rank == loop.ranks - 1:
                bucket.buffer().copy_(own)

        return _after(loop, keep)(bucket, parts)

    _replace(loop, draw, name, reduce)
    return ["*", name]


@fault("ddp stale", _hooked, _REDUCED, "S", first=1)
def stale(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One parameter's reduced gradient is that of the iteration before."""
    name = _name(loop, draw)
    kept: dict[int, torch.Tensor] = {}
    right = loop.reduce
    names = {id(p): fqn for fqn, p in loop.net.named_parameters()}

    def change(parts: dict[str, torch.Tensor]) -> None:
        kept[loop.iteration] = parts[name].clone()
        if draw.active:
            parts[name].copy_(kept[loop.iteration - 1])

    def reduce(bucket: Any) -> Future:
        parts = _slices(bucket, names)
        return _after(loop, change)(bucket, parts) if name in parts else right(bucket)

    loop.reduce = reduce  # type: ignore[method-assign]
    return [name]


@fault("ddp exchanged", _hooked, _REDUCED, "WX")
def exchanged(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One parameter is given the reduced gradient of another one."""
    one, other = _alike(loop, draw)
    kept: dict[str, torch.Tensor] = {}
    right = loop.reduce
    names = {id(p): fqn for fqn, p in loop.net.named_parameters()}

    def change(parts: dict[str, torch.Tensor]) -> None:
        # Buckets come from the last parameter to the first.
        if other in parts:
            kept[other] = parts[other].clone()
        if one in parts and draw.active:
            parts[one].copy_(kept[other])

    def reduce(bucket: Any) -> Future:
        parts = _slices(bucket, names)
        return _after(loop, change)(bucket, parts) if {one, other} & set(parts) else right(bucket)

    loop.reduce = reduce  # type: ignore[method-assign]
    return [one]


@fault("ddp rounded", _hooked, _REDUCED, "D")
def rounded(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A bucket is sent in bfloat16, and nobody said so."""
    name = _name(loop, draw)

    def reduce(bucket: Any, parts: dict[str, torch.Tensor]) -> Future:
        whole = bucket.buffer()
        small = whole.div(loop.ranks).bfloat16()
        dist.all_reduce(small)
        return _done(whole.copy_(small))

    _replace(loop, draw, name, reduce)
    return ["*", name]


def _with_sync(loop: PlainLoop, draw: Draw, faulty: Callable[[bool], bool]) -> None:
    right = loop.synced
    loop.synced = lambda wanted: right(faulty(wanted) if draw.active else wanted)  # type: ignore


@fault("ddp unsynced", _wrapped, _REDUCED, "PR")
def unsynced(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """no_sync is left on: gradients are never averaged."""
    _with_sync(loop, draw, lambda wanted: False)
    return ["*"]


@fault("ddp early", _accumulates, _REDUCED, "PR")
def early(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients are averaged after another micro-batch than the last."""
    _with_sync(loop, draw, lambda wanted: not wanted)
    return ["*"]


@fault("ddp buffers", lambda o: o.data_parallel and o.model == "images", ("buffer",), "RS")
def buffers(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Running statistics are no longer those of the first rank."""
    model: Any = loop.model
    right = model.will_sync_module_buffers
    model.will_sync_module_buffers = lambda: not draw.active and right()
    return ["*running*", "*"]
