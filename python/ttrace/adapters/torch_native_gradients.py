"""Parameters of a plain torch model and their gradients, the loss and the gradient norm.

`grad_local` is the sum over the iteration's micro-batches of what backward hands to each parameter,
read before DistributedDataParallel reduces it. `grad_reduced` is what the optimizer would find,
before clipping.

Scales. The logical loss is the one whose gradient the optimizer applies. How the user's loop
normalises its loss cannot be seen and need not be: gradients are taken as the loop makes them,
summed over micro-batches. DistributedDataParallel averages over dp, so every rank's loss, and with
it each activation gradient, is dp times its share: all of them have the scale 1/dp, and local
parameter gradients and losses are terms of a sum over dp. A loop that divides by the number of its
own micro-batches thus gives the same logical values for every dp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ttrace.adapters.torch_native_patches import Patches
from ttrace.adapters.torch_native_placement import Provenance
from ttrace.adapters.torch_native_session import DeferredSession
from ttrace.adapters.torch_native_topology import (
    Unplaceable,
    canonical_name,
    is_dtensor,
    local_tensor,
)
from ttrace.capture.gradient_norms import note_norms
from ttrace.capture.graft import Graft
from ttrace.capture.placed import Moment, ParameterRule, Scale
from ttrace.capture.rewrite import Rewrite

# Of BatchNorm: training does not read them.
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Parameters:
    """All parameters of the model, under their own names, tied ones once."""

    def __init__(
        self, session: DeferredSession, root: nn.Module, on_arrival: Callable[[], None]
    ) -> None:
        """`on_arrival()` is called when a gradient reaches a parameter."""
        self.rewrite: Rewrite | None = None
        self.loss_scale: Scale = (1, 1)  # from a gradient as backward makes it to what it means
        self.reduced_scale: Scale = (1, 1)  # the same for gradients as the optimizer finds them
        self._session = session
        self._on_arrival = on_arrival
        self._named = {canonical_name(name): p for name, p in root.named_parameters()}
        self._buffers = {canonical_name(name): b for name, b in root.named_buffers()}
        self._sums: dict[str, torch.Tensor] = {}
        self._order: list[str] = []
        self._arrived: set[str] = set()  # in this iteration
        self._recorded: set[str] = set()  # reduced gradients, in this iteration
        self._handles = [
            parameter.register_hook(self._arriving(fqn))
            for fqn, parameter in self._named.items()
            if parameter.requires_grad
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._sums.clear()

    def end_iteration(self) -> None:
        self._sums.clear()
        self._order.clear()
        self._arrived.clear()
        self._recorded.clear()
        self.loss_scale = self.reduced_scale = (1, 1)

    def begin_iteration(self, graft: Graft | None) -> None:
        """Before the first forward: what it will use, and grafting."""
        session = self._session
        self.end_iteration()
        iteration = session.iteration
        first = iteration == session.settings.iterations[0]
        for fqn, parameter in self._named.items():
            session.record(
                fqn,
                "param" if first else "param_updated",
                "",
                parameter,
                iteration=iteration if first else iteration - 1,
                pass_="forward" if first else "optimizer",
                always=True,
            )
            if graft is not None:
                try:
                    local, placements = session.local(parameter, "")
                except Unplaceable:
                    continue  # the record above has said so
                graft.parameter(fqn, local, placements, iteration)
        if session.topology.dp_rank > 0:
            return  # DistributedDataParallel takes rank 0's buffers: others may differ for a while
        for fqn, buffer in self._buffers.items():
            session.record(fqn, "buffer", "", buffer, iteration=iteration, pass_="forward")
            if graft is not None and fqn.rpartition(".")[2] not in _STATISTICS:
                graft.keeps_buffer(fqn, buffer, iteration)

    def _arriving(self, fqn: str) -> Callable[[torch.Tensor], torch.Tensor | None]:
        def arrived(gradient: torch.Tensor | None) -> torch.Tensor | None:
            session = self._session
            if gradient is None:
                return None
            self._on_arrival()
            if not session.recording or session.backward_moment is None:
                return None
            self._arrived.add(fqn)
            replaced = None
            if self.rewrite is not None:
                topology = session.topology
                coordinate = f"dp={topology.dp_rank}" if topology.dp_size > 1 else ""
                replaced = self.rewrite.parameter_gradient(
                    fqn, ParameterRule(), coordinate, gradient
                )
                gradient = gradient if replaced is None else replaced
            before = self._sums.get(fqn)
            if before is None:
                self._order.append(fqn)
                # Kept on the device, in the order and precision in which torch itself adds.
                self._sums[fqn] = gradient.detach().clone()
            else:
                self._sums[fqn] = before + gradient.detach()
            return replaced

        return self._session.guarded(arrived)

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that the loop has now, without DTensors' wrapping."""
        for fqn, parameter in self._named.items():
            if parameter.grad is not None:
                gradient: Any = parameter.grad
                yield fqn, gradient._local_tensor if is_dtensor(gradient) else gradient

    def arrived(self, of: Iterable[torch.Tensor]) -> bool:
        """Whether this iteration's backward has reached one of these parameters."""
        wanted = {id(parameter) for parameter in of}
        return any(id(self._named[fqn]) in wanted for fqn in self._arrived)

    def after_backward(self, of: Iterable[torch.Tensor] | None, unscaled: bool) -> None:
        """Local and reduced gradients, once an iteration: of all parameters, or of those that an
        optimizer steps. `unscaled`: the loss scale has been taken out of what is reduced."""
        self.reduced_scale = (1, 1) if unscaled else self.loss_scale
        wanted = None if of is None else {id(parameter) for parameter in of}
        session, topology = self._session, self._session.topology
        numerator, denominator = self.loss_scale
        over = (topology.dp_name,) if topology.dp_name else ()
        # In the order of arrival: the first wrong one is where a fault began.
        names = [
            fqn
            for fqn in dict.fromkeys((*self._sums, *self._named))
            if fqn not in self._recorded and (wanted is None or id(self._named[fqn]) in wanted)
        ]
        self._recorded.update(names)
        for fqn in names:
            total = self._sums.pop(fqn, None)
            if total is not None:
                terms = topology.dp_placement("Partial(sum)")
                scale = numerator, denominator * topology.dp_size
                self._record(fqn, "grad_local", total, terms, scale=scale)
        found = []
        for fqn in names:
            gradient = self._named[fqn].grad
            if gradient is not None:
                found.append((fqn, local_tensor(gradient) if is_dtensor(gradient) else gradient))
                self._record(
                    fqn,
                    "grad_reduced",
                    gradient,
                    "",
                    reduced_over=over,
                    scale=self.reduced_scale,
                )
        note_norms(session, session.iteration, found)
        if names and session.iteration == session.settings.iterations[0]:
            order = [fqn for fqn in dict.fromkeys(self._order) if fqn in names]
            session.note("reduction_order", names=order)

    def _record(self, fqn: str, role: str, value: torch.Tensor, place: str, **rest: Any) -> None:
        iteration = self._session.iteration
        self._session.record(
            fqn, role, "", value, place, iteration=iteration, pass_="backward", **rest
        )

    def are(self, gradients: Iterable[torch.Tensor]) -> bool:
        """Whether these are the gradients of all parameters, so that a norm is the norm."""
        mine = {id(p.grad) for p in self._named.values() if p.grad is not None}
        return bool(mine) and {id(gradient) for gradient in gradients} == mine


class Losses:
    """The scalars on which the loop calls backward(). Of several in one micro-batch the sum is the
    loss."""

    def __init__(
        self, session: DeferredSession, patches: Patches, last_moment: Callable[[], Moment | None]
    ) -> None:
        self._session = session
        self._last_moment = last_moment
        # What Tensor.backward calls, and others directly.
        patches.wrap_call(torch.autograd, "backward", session.guarded(self._backward))

    def _backward(self, tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            return  # within a backward: reentrant checkpointing
        session, moment = self._session, self._last_moment()
        session.backward_moment = moment
        if moment is None:
            return
        for loss in [tensors] if torch.is_tensor(tensors) else list(tensors):
            if grad_tensors is None and loss.numel() == 1:
                self._record(loss, moment)

    def _record(self, loss: torch.Tensor, moment: Moment) -> None:
        session, topology = self._session, self._session.topology
        placements = f"mb:Partial(sum) {topology.dp_placement('Partial(sum)')}".strip()
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
            micro_batch=moment.micro_batch,
            scale=moment.batch.grad_scale,
        )


class Clipping:
    """Gradients are read before clip_grad_norm_ changes them, and the norm that it finds."""

    def __init__(
        self,
        session: DeferredSession,
        patches: Patches,
        backward_done: Callable[[], Parameters | None],
    ) -> None:
        self._session = session
        self._backward_done = backward_done
        self._norm_type = 2.0
        # What this iteration was seen to clip by. Clipping that is not seen is not "none": a loop
        # may have a function of its own for it.
        self.limits: dict[str, float | None] = {}
        self._several: set[str] = set()  # limits that differ between calls: not one fact
        for owner in (clip_grad, nn.utils):
            patches.wrap_call(owner, "clip_grad_value_", session.guarded(self._clip_values))
        # What clip_grad_norm_ itself calls, so that copies of its name do not matter.
        patches.wrap_call(clip_grad, "_get_total_norm", session.guarded(self._norm_of))
        self.observed = patches.wrap_call(
            clip_grad, "_clip_grads_with_norm_", session.guarded(self._clip)
        )

    def begin_iteration(self) -> None:
        self.limits.clear()
        self._several.clear()

    def _limit(self, name: str, value: float) -> None:
        # An infinite limit is how one asks for the norm alone.
        seen = float(value) if math.isfinite(value) else None
        if name in self._several or self.limits.get(name, seen) != seen:
            self._several.add(name)
            self.limits.pop(name, None)
        else:
            self.limits[name] = seen

    def _clip_values(self, tensors: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
        if self._session.due:
            self._limit("clip_grad_value", clip_value)

    def _norm_of(self, tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> None:
        self._norm_type = float(norm_type)

    def _clip(
        self, tensors: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any
    ) -> None:
        session, parameters = self._session, self._backward_done()
        if parameters is None:
            return
        self._limit("clip_grad", max_norm)
        self._limit("clip_grad_norm_type", self._norm_type)
        several = [tensors] if torch.is_tensor(tensors) else tensors
        if not isinstance(several, list | tuple):
            return  # reading it would use it up
        gradients = [tensor.grad for tensor in several if tensor.grad is not None]
        if self._norm_type != 2.0 or not parameters.are(gradients):
            return
        norm = total_norm
        if is_dtensor(norm):
            if not all(placement.is_replicate() for placement in norm.placements):
                session.not_observed("grad_norm", "", "a norm whose reduction is pending")
                return
            norm = local_tensor(norm)
        session.record(
            "grad_norm",
            "grad_norm",
            "",
            norm.detach().reshape(()),
            iteration=session.iteration,
            pass_="optimizer",
            scale=parameters.reduced_scale,
        )
