"""A leg is one run of a captured iteration: the real one, or a rerun that asks a question.

`replay`    is anything left over from one run to the next, and is the run deterministic?
`noise.k`   how far does round-off alone move each tensor?
`fp32`      what would the result be without low precision?
`fp32.noise.k`  and how far does round-off move that?

A Leg changes the process in `enter` and puts everything back in `exit`; its `hooks` are the noise
that the module hooks apply while it runs. Legs know no framework: what an fp32 rerun has to swap
comes from the adapter, as a context manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

from ttrace.capture.noise import Noise

FullPrecision = Callable[[], AbstractContextManager[Any]]


class Leg:
    """The base, and the legs `real` and `replay`: nothing is changed."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def hooks(self) -> Noise | None:
        return None

    def enter(self) -> None:
        pass

    def exit(self) -> None:
        pass


class NoiseLeg(Leg):
    """Noise of one unit of round-off on every computed value and gradient."""

    def __init__(self, name: str, noise: Noise) -> None:
        super().__init__(name)
        self._noise = noise

    @property
    def hooks(self) -> Noise | None:
        return self._noise


class Fp32Leg(Leg):
    """Everything in fp32, with weights as the low precision rounds them."""

    def __init__(self, name: str, full_precision: FullPrecision, noise: Noise | None) -> None:
        super().__init__(name)
        self._full_precision = full_precision
        self._noise = noise
        self._stack = ExitStack()

    @property
    def hooks(self) -> Noise | None:
        return self._noise

    def enter(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(_exact_matmuls())
            stack.enter_context(self._full_precision())
            self._stack = stack.pop_all()

    def exit(self) -> None:
        self._stack.close()


def needs_full_precision(name: str) -> bool:
    return name.split(".")[0] == "fp32"


def make_leg(name: str, make_noise: Callable[[int], Noise], full_precision: FullPrecision) -> Leg:
    """The leg called `name`, one of those that settings.parse_legs accepts."""
    words = name.split(".")
    number = int(words[-1]) if words[-1].isdecimal() else None
    noise = None if number is None else make_noise(number)
    if words[0] == "fp32":
        return Fp32Leg(name, full_precision, noise)
    if noise is not None:
        return NoiseLeg(name, noise)
    return Leg(name)


@contextmanager
def running(leg: Leg) -> Iterator[Leg]:
    """Enters and leaves a leg, whatever happens in between."""
    leg.enter()
    try:
        yield leg
    finally:
        leg.exit()


@contextmanager
def _exact_matmuls() -> Iterator[None]:
    """No TF32 and no reductions in less than fp32: an fp32 leg must mean it."""
    flags: list[tuple[Any, str]] = []
    for owner in (torch.backends.cuda.matmul, torch.backends.cudnn):
        for name in (
            "allow_tf32",
            "allow_bf16_reduced_precision_reduction",
            "allow_fp16_reduced_precision_reduction",
        ):
            if hasattr(owner, name):
                flags.append((owner, name))
    before = [(owner, name, getattr(owner, name)) for owner, name in flags]
    try:
        for owner, name in flags:
            setattr(owner, name, False)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
