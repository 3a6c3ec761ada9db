"""Where a training process is: iteration, call of the schedule, phase, micro-batch, module.

Phases: `forward` and `backward` of a micro-batch, `between` them (pipeline sends), `finalize` (the
reduction of gradients) and `optimizer`. A forward that is recomputed inside backward is `forward`
too, of the micro-batch whose backward runs: it must meet the same fault. Outside all of them, as in
the trainer's logging or in a tool's own communication, `phase` is None and nothing is planted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SCHEDULES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
)


class Course:
    """Keeps count by wrapping Megatron's schedules. One per process."""

    def __init__(self, on_begin: Callable[[], None], on_end: Callable[[], None]) -> None:
        """`on_begin` and `on_end` are called around each call of a schedule."""
        self.iteration = 0
        self.run = -1  # calls of the schedule in this iteration; 0 is the trainer's own
        self.modules: list[str] = []  # those whose forward runs, outermost first
        self._phase: str | None = None
        self._micro_batches = {"forward": 0, "backward": 0}
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
        """Counted from 0, per rank; 0 outside forward and backward."""
        return max(0, self._micro_batches.get(self._phase or "", 1) - 1)

    @property
    def micro_batches(self) -> int:
        """How many there were so far in this call of the schedule."""
        return self._micro_batches["forward"]

    @property
    def module(self) -> str:
        """The innermost module that runs, or whose backward runs; "" is the model."""
        if self.modules:
            return self.modules[-1]
        node = torch._C._current_autograd_node() if self._phase == "backward" else None
        return getattr(node, "zoo_module", "")

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        outer, self._phase = self._phase, phase
        if phase in self._micro_batches:
            self._micro_batches[phase] += 1
        try:
            yield
        finally:
            self._phase = outer

    def next_iteration(self) -> None:
        self.iteration += 1
        self.run = -1

    def _wrap_schedules(self) -> None:
        from megatron.core.pipeline_parallel import schedules

        for name in _SCHEDULES:
            setattr(schedules, name, self._schedule(getattr(schedules, name)))
        for name, phase in (("forward_step", "forward"), ("backward_step", "backward")):
            setattr(schedules, name, self._inside(phase, getattr(schedules, name)))

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def schedule(*args: Any, **kwargs: Any) -> Any:
            self.run += 1
            self._micro_batches = dict.fromkeys(self._micro_batches, 0)
            self.modules.clear()
            with self.within("between"):
                self._on_begin()
                try:
                    return original(*args, **kwargs)
                finally:
                    self._on_end()

        return schedule

    def _inside(self, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            with self.within(phase):
                return original(*args, **kwargs)

        return step

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
