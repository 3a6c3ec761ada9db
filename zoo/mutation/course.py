"""Where a training process is: iteration, call of the schedule, phase, micro-batch, module.

Phases: `forward` and `backward` of a micro-batch, `between` them (pipeline sends), `finalize` (the
reduction of gradients, also where it begins within backward) and `optimizer`. A forward that is
recomputed inside backward is `forward` too, of the micro-batch whose backward runs: it must meet
the same fault. Outside all of them, as in the trainer's logging or in a tool's own communication,
`phase` is None and nothing is planted.

A stage with virtual ones has several chunks of the model, whose micro-batches come interleaved:
each chunk counts its own. What a forward or backward returns is marked with its place, by which the
backward of an output and the sender of a tensor are told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

_SCHEDULES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
    "forward_backward_pipelining_with_interleaving",
)


@dataclass(frozen=True)
class Place:
    """One forward or backward of one chunk. Both numbers are counted from 0, per rank."""

    direction: str
    chunk: int
    micro_batch: int


class Course:
    """Keeps count by wrapping Megatron's schedules. One per process."""

    def __init__(
        self, chunks: list[Any], on_begin: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        """`chunks` as the schedules are given them. `on_begin` and `on_end` are called around each
        call of a schedule."""
        self.iteration = 0
        self.run = -1  # calls of the schedule in this iteration; 0 is the trainer's own
        self.modules: list[str] = []  # those whose forward runs, outermost first
        self._phase: str | None = None
        self._name = ""
        self._place = Place("forward", 0, 0)
        self._numbers = {id(chunk): number for number, chunk in enumerate(chunks)}
        self._forwards = [0] * len(chunks)
        self._on_begin, self._on_end = on_begin, on_end
        self._wrap_schedules()
        self._mark_autograd_nodes()

    @property
    def active(self) -> bool:
        return self._phase is not None

    @property
    def phase(self) -> str | None:
        return "forward" if self.recomputing else self._phase

    @property
    def recomputing(self) -> bool:
        return self._phase == "backward" and bool(self.modules)

    @property
    def micro_batch(self) -> int:
        """Counted from 0, per rank and chunk; 0 outside forward and backward."""
        return self._place.micro_batch if self._phase in ("forward", "backward") else 0

    @property
    def chunk(self) -> int:
        """That whose forward or backward ran last."""
        return self._place.chunk

    @property
    def micro_batches(self) -> int:
        """How many there were so far in this call of the schedule."""
        return max(self._forwards)

    @property
    def module(self) -> str:
        """The innermost module that runs, or whose backward runs; "" is the model. Or the bucket
        that is communicated."""
        if self._name:
            return self._name
        if self.modules:
            return self.modules[-1]
        node = torch._C._current_autograd_node() if self._phase == "backward" else None
        return getattr(node, "zoo_module", "")

    @contextmanager
    def within(self, phase: str | None) -> Iterator[None]:
        outer, self._phase = self._phase, phase
        try:
            yield
        finally:
            self._phase = outer

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """What runs belongs to no module, but has this name."""
        outer, self._name = self._name, name
        try:
            yield
        finally:
            self._name = outer

    def next_iteration(self) -> None:
        self.iteration += 1
        self.run = -1

    def _wrap_schedules(self) -> None:
        from megatron.core.pipeline_parallel import schedules

        for name in _SCHEDULES:
            setattr(schedules, name, self._schedule(getattr(schedules, name)))
        schedules.forward_step = self._forward(schedules.forward_step)
        schedules.backward_step = self._backward(schedules.backward_step)

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def schedule(*args: Any, **kwargs: Any) -> Any:
            self.run += 1
            self._forwards = [0] * len(self._forwards)
            self.modules.clear()
            with self.within("between"):
                self._on_begin()
                try:
                    return original(*args, **kwargs)
                finally:
                    self._on_end()

        return schedule

    def _forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward_step(step: Any, data: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            chunk = self._numbers.get(id(model), 0)
            self._place = Place("forward", chunk, self._forwards[chunk])
            self._forwards[chunk] += 1
            with self.within("forward"):
                result = original(step, data, model, *args, **kwargs)
            _mark(result[0], self._place)
            return result

        return forward_step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward_step(given: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
            of_forward = place_of(output)
            assert of_forward is not None, "the output of no forward"
            self._place = Place("backward", of_forward.chunk, of_forward.micro_batch)
            with self.within("backward"):
                result = original(given, output, *args, **kwargs)
            _mark(result, self._place)
            return result

        return backward_step

    def _mark_autograd_nodes(self) -> None:
        """Backward knows no modules, but a node of a custom function is its context: it is told
        in which module it was made."""
        apply = torch.autograd.Function.apply.__func__
        course = self

        def marking(cls: type, *args: Any, **kwargs: Any) -> Any:
            result = apply(cls, *args, **kwargs)
            if course.modules:
                for value in result if isinstance(result, tuple) else (result,):
                    if torch.is_tensor(value) and value.grad_fn is not None:
                        value.grad_fn.zoo_module = course.modules[-1]
            return result

        torch.autograd.Function.apply = classmethod(marking)


def _mark(values: Any, place: Place) -> None:
    for value in values if isinstance(values, list) else [values]:
        if torch.is_tensor(value):
            value.zoo_place = place


def place_of(values: Any) -> Place | None:
    """Where a tensor, or the first of a list, was made; None: by no forward or backward."""
    value = values[0] if isinstance(values, list) else values
    return getattr(value, "zoo_place", None)
