"""Faults of the optimizer's step, and of what it computes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions

_UPDATED = ("param_updated", "optim_state")


def _adam(options: LoopOptions) -> bool:
    return options.optimizer in ("adam", "adamw")


def _adamw(options: LoopOptions) -> bool:
    return options.optimizer == "adamw"


def _sgd(options: LoopOptions) -> bool:
    return options.optimizer == "sgd"


def _any(options: LoopOptions) -> bool:
    return True


def _names(loop: PlainLoop, group: dict[str, Any]) -> list[str]:
    own = {id(parameter) for parameter in group["params"]}
    return [name for name, parameter in loop.net.named_parameters() if id(parameter) in own]


def _setting(loop: PlainLoop, draw: Draw, index: int, key: str, value: Any) -> Sequence[str]:
    """One group has another value of `key` from the first step with the fault on."""
    group, right = loop.optimizer.param_groups[index], loop.update

    def update() -> None:
        if draw.here:
            group[key] = value
        right()

    loop.update = update  # type: ignore[method-assign]
    return _names(loop, group)


def _drawn_group(loop: PlainLoop, draw: Draw) -> tuple[int, dict[str, Any]]:
    index = draw.rng.randrange(len(loop.optimizer.param_groups))
    return index, loop.optimizer.param_groups[index]


@fault("optimizer lr", _any, _UPDATED, "HR", one=True)
def rate(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One group has another learning rate."""
    index, group = _drawn_group(loop, draw)
    return _setting(loop, draw, index, "lr", group["lr"] * (1 + draw.mutant.size))


@fault("optimizer decay off", _any, _UPDATED, "HR", one=True)
def no_decay(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Weights of the first group do not decay."""
    return _setting(loop, draw, 0, "weight_decay", 0.0)


@fault("optimizer decay on", _any, _UPDATED, "HR", one=True)
def decay_of_vectors(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Vectors decay, too."""
    return _setting(loop, draw, 1, "weight_decay", loop.optimizer.param_groups[0]["weight_decay"])


@fault("optimizer betas", _adam, _UPDATED, "HR", one=True)
def exchanged_betas(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One group's betas are exchanged."""
    index, group = _drawn_group(loop, draw)
    return _setting(loop, draw, index, "betas", tuple(reversed(group["betas"])))


@fault("optimizer eps", _adam, _UPDATED, "HR", one=True)
def epsilon(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One group has another epsilon."""
    index, _ = _drawn_group(loop, draw)
    return _setting(loop, draw, index, "eps", draw.rng.choice((1e-6, 1e-15)))


@fault("optimizer coupled", _adamw, _UPDATED, "HR", one=True)
def coupled(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Weight decay is a part of the gradient."""
    return _setting(loop, draw, 0, "decoupled_weight_decay", False)


@fault("optimizer nesterov", _sgd, _UPDATED, "HR", one=True)
def nesterov(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One group's momentum is Nesterov's."""
    index, _ = _drawn_group(loop, draw)
    return _setting(loop, draw, index, "nesterov", True)


@fault("optimizer momentum", _sgd, _UPDATED, "HR", one=True)
def momentum(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One group has less momentum."""
    index, group = _drawn_group(loop, draw)
    return _setting(loop, draw, index, "momentum", group["momentum"] * (1 - draw.mutant.size / 2))


# What a step computes with, in the step itself: torch's optimizers gather it in one method.


def _within(loop: PlainLoop, draw: Draw, change: Callable[..., None]) -> None:
    """`change(group, lists)` may replace what is in the lists that the step is given."""
    optimizer: Any = loop.optimizer
    right = optimizer._init_group

    def gathered(group: dict[str, Any], *lists: Any) -> Any:
        found = right(group, *lists)
        if draw.here:
            change(group, lists)
        return found

    optimizer._init_group = gathered


@fault("optimizer uncorrected", _adam, _UPDATED, "HR", one=True)
def uncorrected(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """No bias correction: as after very many steps."""

    def change(group: dict[str, Any], lists: Any) -> None:
        counts = lists[5]
        for index, count in enumerate(counts):
            counts[index] = count + 1e6
            count += 1

    _within(loop, draw, change)
    return ["*"]


@fault("optimizer count", _adam, _UPDATED, "SCHR", one=True)
def stale_count(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The count of steps does not go up."""

    def change(group: dict[str, Any], lists: Any) -> None:
        counts = lists[5]
        counts[:] = [count.clone() for count in counts]

    _within(loop, draw, change)
    return ["*"]


@fault("optimizer skipped", _any, _UPDATED, "SR", one=True)
def skipped(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """One parameter is left out."""
    name = draw.rng.choice([name for name, _ in loop.net.named_parameters()])
    parameter = loop.net.get_parameter(name)

    def change(group: dict[str, Any], lists: Any) -> None:
        given = lists[0]
        place = next((k for k, other in enumerate(given) if other is parameter), None)
        if place is not None:
            for values in lists:
                if len(values) > place:
                    del values[place]

    _within(loop, draw, change)
    return [name]


@fault("optimizer unscaled", _any, _UPDATED, "KGR", one=True)
def scaled_gradients(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The step computes with multiples of the gradients."""
    factor = 1 + draw.mutant.size

    def change(group: dict[str, Any], lists: Any) -> None:
        gradients = lists[1]
        gradients[:] = [gradient * factor for gradient in gradients]

    _within(loop, draw, change)
    return ["*"]


@fault("optimizer forgotten", _any, _UPDATED, "CS", first=1, before=1)
def forgotten(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Moments are empty when a step begins, as after a checkpoint that did not hold them."""
    right = loop.update
    names = ("exp_avg", "exp_avg_sq", "momentum_buffer")

    def update() -> None:
        for state in loop.optimizer.state.values() if draw.active else ():
            for name in names:
                if torch.is_tensor(state.get(name)):
                    state[name].zero_()
        right()

    loop.update = update  # type: ignore[method-assign]
    return ["*"]


@fault("optimizer twice", _any, _UPDATED, "SKHC")
def twice(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Two steps with one gradient."""
    right = loop.update

    def update() -> None:
        right()
        if draw.active and loop.scaler is None:
            right()

    loop.update = update  # type: ignore[method-assign]
    return ["*"]
