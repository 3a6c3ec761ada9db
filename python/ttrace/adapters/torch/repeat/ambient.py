"""What surrounds a call and decides what it computes: random states, autocast, whether gradients
are wanted."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

_DEVICES = ("cpu", "cuda")


class AutocastCaches:
    """Counts how often torch has thrown away the weights that autocast has cast: two forwards
    within one region share a cast, and their gradients meet there, in low precision."""

    generation: ClassVar[int] = 0

    @classmethod
    def cleared(cls) -> None:
        cls.generation += 1


@dataclass(frozen=True)
class Ambient:
    gradients: bool
    autocast: tuple[tuple[bool, Any], ...]  # of each device: on, and its dtype
    cached: bool  # whether autocast keeps what it has cast
    generation: int
    loss_parallel: bool
    random: tuple[Any, ...]  # of torch, of the device
    python: tuple[Any, ...] = ()  # of Python and numpy, where the user's code runs

    @staticmethod
    def now() -> Ambient:
        return Ambient(
            torch.is_grad_enabled(),
            tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES),
            torch.is_autocast_cache_enabled(),
            AutocastCaches.generation,
            _loss_parallel_is_on(),
            _random_states(),
        )

    def with_python(self) -> Ambient:
        """For what runs Python code of the user's again."""
        numpy = sys.modules.get("numpy")
        state = None if numpy is None else numpy.random.get_state()
        return replace(self, python=(random.getstate(), state))

    @property
    def in_low_precision(self) -> bool:
        return any(on and dtype != torch.float32 for on, dtype in self.autocast)


@contextmanager
def as_before(autocast: bool = True) -> Iterator[Surroundings]:
    """Inside, calls are made with what surrounded them then. `autocast`: whether that, too."""
    before = Ambient.now()
    try:
        yield Surroundings(autocast)
    finally:
        torch.clear_autocast_cache()
        _set(before, True)
        _set_loss_parallel(before.loss_parallel)


class Surroundings:
    """Of one run of the calls, whose order is that of the first time."""

    def __init__(self, autocast: bool) -> None:
        self._autocast = autocast
        self._generation: int | None = None

    @contextmanager
    def of(self, ambient: Ambient) -> Iterator[None]:
        if ambient.generation != self._generation:
            self._generation = ambient.generation
            torch.clear_autocast_cache()
        _set(ambient, self._autocast)
        _set_loss_parallel(ambient.loss_parallel)
        _set_random_states(ambient)
        # A model that enters autocast itself throws away what was cast, unless it is within a
        # region of the loop's.
        inside = self._autocast and any(on for on, _ in ambient.autocast)
        if inside:
            torch.autocast_increment_nesting()
        try:
            with torch.set_grad_enabled(ambient.gradients):
                yield
        finally:
            if inside:
                torch.autocast_decrement_nesting()


def _set(ambient: Ambient, autocast: bool) -> None:
    for device, (on, dtype) in zip(_DEVICES, ambient.autocast, strict=True):
        torch.set_autocast_enabled(device, on and autocast)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(ambient.cached)


def _random_states() -> tuple[Any, ...]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states.append(torch.cuda.get_rng_state())
    return tuple(states)


def _set_random_states(ambient: Ambient) -> None:
    torch.set_rng_state(ambient.random[0])
    if len(ambient.random) > 1:
        torch.cuda.set_rng_state(ambient.random[1])
    if ambient.python:
        random.setstate(ambient.python[0])
        if ambient.python[1] is not None:
            sys.modules["numpy"].random.set_state(ambient.python[1])


def _loss_ops() -> Any:
    """torch's module of losses that are cut over vocabulary, if the process has it."""
    return sys.modules.get("torch.distributed.tensor.parallel.loss")


def _loss_parallel_is_on() -> bool:
    module = _loss_ops()
    if module is None:
        return False
    if not hasattr(module, "customized_loss_ops"):
        return False  # another version of torch: its losses are not followed
    handlers = module.DTensor._op_dispatcher._custom_op_handlers
    return any(op in handlers for op in module.customized_loss_ops)


def _set_loss_parallel(on: bool) -> None:
    if on != _loss_parallel_is_on():
        module = _loss_ops()
        (module._enable_custom_loss_ops if on else module._disable_custom_loss_ops)()
