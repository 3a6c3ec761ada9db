"""Gradients that a loop clears although no step has used them.

Either the loop gives the step up: it had torch take their norm or clip them first, or some are not
finite. Then the iteration is over. Or the iteration goes on without them: what its forwards and
backwards have brought so far reaches no weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.loss_scale import parameters_of, plain
from ttrace.adapters.torch.store import Store
from ttrace.capture import source_lines
from ttrace.capture.found_gradients import what_it_holds
from ttrace.capture.note_lines import in_lines
from ttrace.capture.patches import Patches
from ttrace.capture.tensor_bytes import on_host


class Clearing:
    """Of a loop with one optimizer: one of several may be cleared of what the backward of another's
    loss left there."""

    def __init__(
        self,
        session: LoopSession,
        patches: Patches,
        model: AttachedModel,
        optimizers: Sequence[Any],
        store: Callable[[], Store | None],
        given_up: Callable[[Any], None],
    ) -> None:
        """`given_up(optimizer)`: the loop makes no step of what it found in this iteration."""
        self._session = session
        self._model = model
        self._store = store
        self._given_up = given_up
        if len(optimizers) != 1:
            return
        self._optimizer = optimizers[0]
        guarded = session.guarded
        patches.wrap_call(torch.optim.Optimizer, "zero_grad", guarded(self._by_optimizer))
        patches.wrap_call(nn.Module, "zero_grad", guarded(self._by_module))

    def _by_optimizer(self, optimizer: Any, *_: Any, **__: Any) -> None:
        if plain(optimizer) is plain(self._optimizer):
            self._cleared(parameters_of(self._optimizer))

    def _by_module(self, module: nn.Module, *_: Any, **__: Any) -> None:
        if self._session.due:
            self._cleared(list(module.parameters()))

    def _cleared(self, parameters: Iterable[torch.Tensor]) -> None:
        session, store = self._session, self._store()
        iteration = session.now
        if store is None or iteration.steps.runs or not session.due or not store.has(parameters):
            return
        # The backward of another model may reach these parameters too, as a generator's does those
        # of who judges it: before the first forward of an iteration what it left is no part of one.
        if iteration.is_empty:
            iteration.drop_gradients()
            return
        names = store.arrived(parameters)
        if not names:
            return
        if iteration.clipping.looked_at or not self._are_finite(store):
            self._given_up(self._optimizer)
            return
        source_lines.note_caller(session, "zero_grad")
        for part in in_lines(names):
            session.note(
                "gradients_cleared",
                iteration=session.iteration,
                micro_batches=iteration.micro_batches.count,
                parameters=part,
            )

    def _are_finite(self, store: Store) -> bool:
        """Where all ranks find the same, so that an iteration ends on all of them or on none. Waits
        for the device."""
        topology = self._session.topology
        if topology.world_size > 1 and not self._model.ddps:
            return True
        norms = [what_it_holds(gradient) for _, gradient in store.gradients()]
        return all(math.isfinite(norm) for norm in on_host([n for n in norms if n is not None]))
