"""Follows a loop that reduces its gradients itself, see own_reduction.py, through iterations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.store import Store
from ttrace.adapters.torch.topology import Unsupported
from ttrace.capture.collective_calls import Call
from ttrace.capture.note_lines import in_lines

_COPIES = "the loop reduces copies of gradients, which are not told apart"
# In the place of a communication hook's name (src/experiment/reduction_hook.h).
_NAME = "the loop's own reduction"


class ReductionByHand:
    """Of one run. Says nothing before the gradients of a captured iteration are complete."""

    def __init__(self, session: DeferredSession, store: Store) -> None:
        self._session = session
        self._store = store

    def heard(self, call: Call, names: Sequence[str], node: str) -> bool:
        """A collective outside of forwards and steps. `node`: the operation of the model that is
        differentiated by it. Whether it is taken for a reduction of gradients."""
        now = self._session.now
        # Before any gradient there is, and of parameters: weights that are averaged, or sent.
        no_gradients = not now.gradients.arrived or self._is_of_parameters(call)
        return now.own_reduction.heard(call, names, is_model=bool(node) or no_gradients)

    def complete(self) -> None:
        """An iteration is. Raises Unsupported if its reductions do not show that ranks are
        data-parallel."""
        session, own = self._session, self._session.now.own_reduction
        sizes = self._store.sizes_of(session.now.gradients.arrived)
        try:
            own.confirm(session.topology.world_size, sizes)
        except Unsupported as refusal:
            session.unsupported(refusal.what, refusal.reason, refusal.way_out)
            raise
        for late, names in own.early().items():
            self._note_early(names, late)
        if own.counts_copies and session.once(_COPIES):
            session.note("collectives_not_seen", phase="reduction", reason=_COPIES)
        self._note_precision(sum(sizes.values()))

    def _is_of_parameters(self, call: Call) -> bool:
        places = {
            p.untyped_storage().data_ptr()
            for p in self._store.stored_parameters()
            if p.layout is torch.strided
        }
        return any(
            tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in places
            for tensor in call.tensors
        )

    def _note_early(self, names: Sequence[str], late: Sequence[int]) -> None:
        for part in in_lines(names):
            self._session.note(
                "reduced_early",
                iteration=self._session.iteration,
                parameters=part,
                micro_batch=min(late) - 1,
                micro_batches=self._session.now.micro_batches.count,
                late=list(late),
            )

    def _note_precision(self, elements: int) -> None:
        """Where gradients are sent in fewer digits than they have."""
        session = self._session
        dtypes = {gradient.dtype for _, gradient in self._store.gradients()}
        sent = session.now.own_reduction.sends_less_than(d for d in dtypes if d.is_floating_point)
        if sent is None or not session.once("precision of the reduction"):
            return
        session.note(
            "comm_hook",
            name=_NAME,
            iteration=session.iteration,
            sends=str(sent).removeprefix("torch."),
            elements=elements,
            ranks=list(range(session.topology.world_size)),
        )
