"""Notes of the collectives of a captured iteration's real call and its optimizer step.

Kept in memory until the iteration ends: then one note `collective` for each, and one `collectives`
that says how many there are, so that "none was seen" is something a reader can rely on.
"""

from __future__ import annotations

import bisect
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ttrace.capture import collective_calls
from ttrace.capture.collective_calls import Call, Listening
from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.session import Session

Gradients = Callable[[], Iterable[tuple[str, torch.Tensor | None]]]
# Told of each that the model's forward calls, with the module that runs.
InForward = Callable[[Call, str], None]
# Told of each outside of forwards and steps, with the parameters whose gradients it is seen to move
# and the operation of the model that is differentiated by it, if there is one. The same or better
# known parameters if it reduces gradients, else None.
Reducing = Callable[[Call, Sequence[str], str], Sequence[str] | None]

# A line of an index is at most 1 MiB. Names beyond a quarter of it are left out, all of them: part
# of a list would say that the others are not reduced.
LONGEST_NAMES = 1 << 18


class CollectiveLog:
    """The collectives of one rank. `gradients` gives the tensors in which parameter gradients lie
    when they are reduced; `stable` says that these stay where they are for an iteration."""

    def __init__(
        self,
        session: Session,
        hooks: ModuleHooks,
        gradients: Gradients,
        *,
        stable: bool,
        in_forward: InForward | None = None,
        reducing: Reducing | None = None,
    ) -> None:
        self._in_forward = in_forward
        self._reducing = reducing
        self._session = session
        self._hooks = hooks
        self._gradients = gradients
        self._stable = stable
        self._lock = threading.Lock()  # backward runs in threads of its own
        self._listening: Listening | None = None
        self._places: _Places | None = None
        self._seen: list[dict[str, Any]] = []
        self._failures: set[str] = set()
        self._phases: list[tuple[str, tuple[str, ...]]] = []
        self._copies: list[tuple[Callable[[], Any], tuple[str, ...]]] = []

    def begin(self) -> None:
        """A captured iteration begins."""
        self._forget()
        self._hooks.begin_iteration()
        self._deafen()
        self._listening = collective_calls.listen(self._saw, self._failed)

    def end(self) -> None:
        """After the optimizer's step: writes the notes."""
        self._deafen()
        session = self._session
        for seen in self._seen:
            session.note("collective", **seen)
        failed = {"failed": sorted(self._failures)} if self._failures else {}
        session.note("collectives", iteration=session.iteration, count=len(self._seen), **failed)
        self._forget()

    def stop(self) -> None:
        """Hears nothing more; what was not written is dropped."""
        self._deafen()
        self._forget()

    def _deafen(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop()

    def enter(self, phase: str, parameters: Iterable[str] = ()) -> None:
        """What is called from here on, until `leave`, belongs to `phase`, and if parameters are
        named it moves their gradients."""
        self._phases.append((phase, tuple(parameters)))

    def leave(self) -> None:
        if self._phases:  # not if an iteration began in between
            self._phases.pop()

    @contextmanager
    def inside(self, phase: str, parameters: Iterable[str] = ()) -> Iterator[None]:
        self.enter(phase, parameters)
        try:
            yield
        finally:
            self.leave()

    def copied(self, tensors: Sequence[torch.Tensor], copy: torch.Tensor) -> None:
        """`copy` holds these gradients one after the other: what is done to it concerns them."""
        names = [name for tensor in tensors for name in self._names(tensor)]
        if names:
            self._copies.append((weakref.ref(copy), tuple(names)))

    def _forget(self) -> None:
        self._seen, self._phases, self._copies = [], [], []
        self._failures = set()
        self._places = None

    def _failed(self, error: Exception) -> None:
        self._failures.add(f"{type(error).__name__}: {error}")

    def _saw(self, calls: Iterable[Call]) -> None:
        session = self._session
        if session.leg != session.settings.leg or not session.recording:
            return
        with self._lock:
            for call in calls:
                self._add(call)

    def _add(self, call: Call) -> None:
        session = self._session
        phase, fqn, micro_batch, named = self._where()
        if self._in_forward is not None and phase == "forward":
            self._in_forward(call, fqn)
        names, node = named, _differentiates()
        if not names and phase not in ("forward", "recompute"):
            names = tuple(name for tensor in call.tensors for name in self._names(tensor))
            reduces = bool(names) and phase in ("", "backward")
            # Between the steps of two optimizers gradients are told from what a step sends.
            if self._reducing is not None and (names or phase != "optimizer"):
                told = self._reducing(call, names, node)
                reduces |= told is not None
                names = names if told is None else tuple(told)
            if reduces:
                phase, fqn, micro_batch = "reduction", "", -1
        if sum(map(len, names)) > LONGEST_NAMES:
            names = ()
        first = call.tensors[0] if call.tensors else None
        self._seen.append(
            {
                **({"node": node} if node else {}),
                "rank": session.rank,
                "iteration": session.iteration,
                "order": len(self._seen),
                # Of the clock by which records are timed.
                "time_us": time.monotonic_ns() // 1000,
                "kind": call.kind,
                "op": call.op,
                "members": list(call.members),
                "phase": phase,
                "fqn": fqn,
                "micro_batch": micro_batch,
                "elements": sum(tensor.numel() for tensor in call.tensors),
                "dtype": "" if first is None else str(first.dtype).removeprefix("torch."),
                "parameters": list(names),
            }
        )

    def _where(self) -> tuple[str, str, int, tuple[str, ...]]:
        """(phase, module, micro-batch, parameters) of what runs now."""
        session, hooks = self._session, self._hooks
        if self._phases:
            phase, names = self._phases[-1]
            return phase, "", -1, names
        running = hooks.innermost
        if running is not None and session.moment is not None:
            return session.pass_, running, session.moment.micro_batch, ()
        if torch._C._current_graph_task_id() >= 0:  # in a backward
            moment = session.now.backward_moment
            return "backward", hooks.last_backward, -1 if moment is None else moment.micro_batch, ()
        if session.moment is not None:
            return session.pass_, "", session.moment.micro_batch, ()
        return "", "", -1, ()

    def _names(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """The parameters whose gradients lie in this tensor, or that hold a part of it."""
        for copy, names in self._copies:
            if copy() is tensor:
                return names
        if self._places is None or not self._stable:
            self._places = _Places(self._gradients())
        return self._places.overlapping(tensor)


def _differentiates() -> str:
    """The operation of the model whose backward runs; "" if it is a gradient that arrives."""
    node = torch._C._current_autograd_node()
    name = "" if node is None else node.name()
    return "" if name.endswith("AccumulateGrad") else name


class _Places:
    """Where in memory the gradients lie."""

    def __init__(self, gradients: Iterable[tuple[str, torch.Tensor | None]]) -> None:
        found = []
        for name, gradient in gradients:
            if gradient is not None and gradient.numel() > 0:
                found.append((*_extent(gradient), name))
        found.sort()
        self._begins = [begin for begin, _, _ in found]
        self._found = found

    def overlapping(self, tensor: torch.Tensor) -> tuple[str, ...]:
        if tensor.numel() == 0 or not self._found:
            return ()
        begin, end = _extent(tensor)
        # Gradients do not overlap each other, so at most one begins before and reaches in.
        first = max(0, bisect.bisect_right(self._begins, begin) - 1)
        names = []
        for low, high, name in self._found[first:]:
            if low >= end:
                break
            if high > begin:
                names.append(name)
        return tuple(names)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()  # uncoalesced too
    begin = tensor.data_ptr()
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
