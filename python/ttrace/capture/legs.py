"""A leg is one run of a captured iteration: the real one, or a rerun that asks a question.

`replay`    is anything left over from one run to the next, and is the run deterministic?
`noise.k`   how far does round-off alone move each tensor?
`fp32`      what would the result be without low precision?
`fp32.noise.k`  and how far does round-off move that?
`isolated`  what does each module compute if it is given what the reference gave it?
`isolated.noise.k`  and how far does round-off move a value within one module?
`fp32.isolated`, `fp32.isolated.noise.k`  both without low precision

A Leg changes the process in `enter` and puts everything back in `exit`; its `rewrite` is what the
module hooks put in place of values while it runs. Legs know no framework: what an fp32 rerun has to
swap comes from the adapter, as a context manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ttrace.capture.isolation import Isolation
from ttrace.capture.isolation_source import IsolationSources
from ttrace.capture.noise import Noise
from ttrace.capture.recorded_values import RecordedValues
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName

FullPrecision = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Refusal:
    """Why a leg is not run. Where that is `expected` nothing is missing without it."""

    reason: str
    expected: bool = False


class Leg:
    """Changes nothing but the values that its rewrite replaces."""

    def __init__(
        self, name: str, rewrite: Rewrite | None = None, source: RecordedValues | None = None
    ) -> None:
        """`source`: the trace that values are taken from."""
        self.name = name
        self.rewrite = rewrite
        self.source = source

    def enter(self) -> None:
        pass

    def exit(self) -> None:
        pass


class Fp32Leg(Leg):
    """Everything in fp32, with weights as the low precision rounds them."""

    def __init__(
        self,
        name: str,
        rewrite: Rewrite | None,
        source: RecordedValues | None,
        full_precision: FullPrecision,
    ) -> None:
        super().__init__(name, rewrite, source)
        self._full_precision = full_precision
        self._stack = ExitStack()

    def enter(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(_exact_matmuls())
            stack.enter_context(self._full_precision())
            self._stack = stack.pop_all()

    def exit(self) -> None:
        self._stack.close()


class LegFactory:
    """Makes the legs of a run, be they reruns or launches of their own."""

    def __init__(
        self,
        session: Session,
        refusal: Callable[[str], Refusal | None],
        full_precision: FullPrecision | None = None,
        *,
        noise: Callable[[Any, int], Any] = Noise,
        isolation: Callable[[Any, RecordedValues, str, Any], Isolation] = Isolation,
    ) -> None:
        """`refusal(name)`: why the adapter cannot run this leg, or None. `noise` and `isolation`
        make what puts other values in place."""
        self._session = session
        self._sources = IsolationSources(session)
        self._refusal = refusal
        self._full_precision = full_precision
        self._noise = noise
        self._isolation = isolation

    def make(self, name: str) -> Leg | Refusal:
        """The leg called `name`, one of those that settings.parse_legs accepts. An isolated one
        when the legs before it are in the files of all ranks."""
        refusal = self._refusal(name)
        if refusal is not None:
            return refusal
        reason = self._sources.refusal(name)
        if reason is not None:
            return Refusal(reason)
        leg, rewrite = LegName.parse(name), None
        source = self._sources.of(name) if leg.isolated else None
        if leg.noise:
            rewrite = self._noise(self._session, leg.noise)
        if source is not None:
            rewrite = self._isolation(self._session, source, leg.source, rewrite)
        if leg.fp32:
            assert self._full_precision is not None  # else it was refused
            return Fp32Leg(name, rewrite, source, self._full_precision)
        return Leg(name, rewrite, source)


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
