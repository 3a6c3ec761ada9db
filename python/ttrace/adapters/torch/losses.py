"""The losses of a plain torch loop, where it calls backward on them."""

from __future__ import annotations

from typing import Any

import torch

from ttrace.adapters.torch.dtensors import Unplaceable, is_dtensor
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.placement import Provenance
from ttrace.capture.patches import Patches
from ttrace.capture.placed import Moment


class Losses:
    """The scalars on which the loop calls backward(). Of several in one micro-batch the sum is the
    loss."""

    def __init__(self, session: LoopSession, patches: Patches) -> None:
        self._session = session
        # What Tensor.backward calls, and others directly.
        patches.wrap_call(torch.autograd, "backward", session.guarded(self._backward))

    def _backward(self, tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # within a backward: reentrant checkpointing
        iteration = self._session.now
        iteration.micro_batches.backward_begins()
        moment = iteration.micro_batches.last
        iteration.begin_backward(moment)
        if moment is None:
            return
        for loss in [tensors] if torch.is_tensor(tensors) else list(tensors):
            if grad_tensors is None and loss.numel() == 1:
                self._record(loss, moment)

    def _record(self, loss: torch.Tensor, moment: Moment) -> None:
        session, topology = self._session, self._session.topology
        batches = session.now.micro_batches
        placements = f"mb:Partial(sum) {topology.summed()}".strip()
        if not is_dtensor(loss):
            try:
                lies = Provenance(topology)
                placements = f"{placements} {lies.placements(loss)}".strip()
            except Unplaceable as reason:
                session.not_observed("loss", "", str(reason))
                return
        session.record(
            "loss",
            "loss",
            "value",
            loss.reshape(()),
            placements,
            iteration=moment.iteration,
            pass_="forward",
            micro_batch=batches.last_number,
            call=batches.part,  # a loss behind a step is another one
            scale=moment.batch.grad_scale,
        )
