"""Follows a loop that reduces its gradients itself, see own_reduction.py, through iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.refusals import Unsupported
from ttrace.adapters.torch.seen_gradients import storage_of
from ttrace.adapters.torch.store import Store
from ttrace.capture.collective_calls import Call
from ttrace.capture.note_lines import in_lines

_SHOWN = (
    "no wrapper says that the ranks are data-parallel: the loop shows it, which reduces gradients"
    " over all of them"
)
_COPIES = "the loop reduces copies of gradients, which are not told apart"


class ReductionByHand:
    """Of one run. Says nothing before the gradients of a captured iteration are complete."""

    def __init__(self, session: LoopSession, store: Store) -> None:
        self._session = session
        self._store = store

    def heard(self, call: Call, names: Sequence[str], node: str) -> Sequence[str] | None:
        """A collective outside of forwards and steps, of the gradients `names` as far as is seen.
        `node`: the operation of the model that is differentiated by it. The gradients that it
        concerns if it is taken for a reduction of some, else None."""
        now = self._session.now
        in_backward = torch._C._current_graph_task_id() >= 0
        if in_backward and not names and not node:
            names = self._of_hook(call)
        # Before any gradient there is, and of parameters: weights that are averaged, or sent.
        no_gradients = not now.gradients.arrived or self._is_of_parameters(call)
        reduces = now.own_reduction.heard(call, names, is_model=bool(node) or no_gradients)
        if reduces and not in_backward:
            self._look_at_unreached()
        return names if reduces else None

    def _of_hook(self, call: Call) -> Sequence[str]:
        """The parameter whose hooks run, if it is as large as what they send: the gradient that
        they are given, or one that they make of it."""
        name = self._session.now.own_reduction.arrived_last
        alone = len(call.tensors) == 1 and name
        size = self._store.sizes_of((name,))[name] if alone else -1
        return (name,) if alone and call.tensors[0].numel() == size else ()

    def complete(self) -> None:
        """An iteration is. Raises Unsupported if its reductions do not show that ranks are
        data-parallel."""
        session, own = self._session, self._session.now.own_reduction
        sizes = self._store.sizes_of(session.now.gradients.arrived)
        try:
            own.confirm(self._ranks(), sizes)
        except Unsupported as refusal:
            session.unsupported(refusal.what, refusal.reason, refusal.way_out)
            raise
        for late, names in own.early().items():
            self._note_early(names, late)
        if sizes and session.once(_SHOWN):
            session.note("notice", text=_SHOWN)
        if own.counts_copies and session.once(_COPIES):
            session.note("collectives_not_seen", phase="reduction", reason=_COPIES)
        self._note_precision(sizes)

    def _ranks(self) -> list[int]:
        """Those that are presumed to share gradients."""
        topology = self._session.topology
        return topology.ranks_along(topology.reduction)

    def _look_at_unreached(self) -> None:
        """A rank whose rows did not need a parameter adds nothing to its gradient, and reduces it
        all the same. Waits for the device where there is such a one that is not None."""
        unreached = self._session.now.own_reduction.unreached
        for fqn, gradient in self._store.gradients_not_reached():
            if fqn not in unreached:
                unreached[fqn] = gradient is not None and bool(gradient.any())

    def _is_of_parameters(self, call: Call) -> bool:
        used = {storage_of(piece.tensor) for piece in self._store.parameters_used()}
        return any(storage_of(tensor) in used for tensor in call.tensors)

    def _note_early(self, names: Sequence[str], late: Sequence[int]) -> None:
        for part in in_lines(names):
            self._session.note(
                "reduced_early",
                iteration=self._session.iteration,
                parameters=part,
                micro_batch=min(late) // self._session.topology.batch_parts - 1,
                micro_batches=self._session.now.micro_batches.count,
                late=list(late),
                local_is_whole=True,
            )

    def _note_precision(self, sizes: Mapping[str, int]) -> None:
        """Where gradients are sent in fewer digits than they have."""
        session = self._session
        dtypes = {gradient.dtype for _, gradient in self._store.gradients()}
        sent = session.now.own_reduction.sends_less_than(d for d in dtypes if d.is_floating_point)
        if sent is None or not session.once("precision of the reduction"):
            return
        session.note(
            "comm_hook",
            name="",  # no hook: the loop itself
            iteration=session.iteration,
            sends=str(sent).removeprefix("torch."),
            elements=sum(sizes.values()),
            times=session.now.own_reduction.times(sizes),
            ranks=self._ranks(),
        )
