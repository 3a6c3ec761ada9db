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

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ttrace.adapters.torch_native_patches import Patches
from ttrace.adapters.torch_native_placement import Provenance
from ttrace.adapters.torch_native_session import DeferredSession
from ttrace.adapters.torch_native_topology import Unplaceable, is_dtensor, local_tensor
from ttrace.capture.graft import Graft
from ttrace.capture.placed import Moment, ParameterRule
from ttrace.capture.rewrite import Rewrite


class Parameters:
    """All parameters of the model, under their own names, tied ones once."""

    def __init__(self, session: DeferredSession, root: nn.Module) -> None:
        self.rewrite: Rewrite | None = None
        self._session = session
        self._named = dict(root.named_parameters())
        self._sums: dict[str, torch.Tensor] = {}
        self._order: list[str] = []
        self._reduced_done = False
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

    def begin_iteration(self, graft: Graft | None) -> None:
        """Before the first forward: what it will use, and grafting."""
        session = self._session
        self._sums.clear()
        self._reduced_done = False
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

    def _arriving(self, fqn: str) -> Callable[[torch.Tensor], torch.Tensor | None]:
        def arrived(gradient: torch.Tensor) -> torch.Tensor | None:
            session = self._session
            if not session.recording or session.backward_moment is None:
                return None
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

    def after_backward(self) -> None:
        """Local and reduced gradients, once an iteration."""
        if self._reduced_done:
            return
        self._reduced_done = True
        session, topology = self._session, self._session.topology
        for fqn, total in self._sums.items():
            terms = topology.dp_placement("Partial(sum)")
            self._record(fqn, "grad_local", total, terms, scale=(1, topology.dp_size))
        over = (topology.dp_name,) if topology.dp_name else ()
        # In the order of arrival too: the first wrong one is where a fault began.
        for fqn in dict.fromkeys((*self._sums, *self._named)):
            parameter = self._named[fqn]
            if parameter.grad is not None:
                self._record(fqn, "grad_reduced", parameter.grad, "", reduced_over=over)
        if session.iteration == session.settings.iterations[0]:
            names = list(dict.fromkeys(self._order))
            session.note("reduction_order", names=names)
        self._sums.clear()
        self._order.clear()

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
    """The scalars on which the loop calls backward().

    More than one in a micro-batch are several losses; then none is recorded as the loss.
    """

    def __init__(
        self, session: DeferredSession, patches: Patches, last_moment: Callable[[], Moment | None]
    ) -> None:
        self._session = session
        self._last_moment = last_moment
        self._seen: dict[Moment, int] = {}
        patches.wrap_call(torch.Tensor, "backward", session.guarded(self._backward))

    def begin_iteration(self) -> None:
        self._seen.clear()

    @property
    def several(self) -> bool:
        return any(count > 1 for count in self._seen.values())

    def _backward(
        self, loss: torch.Tensor, gradient: torch.Tensor | None = None, *args: Any, **kwargs: Any
    ) -> None:
        session, moment = self._session, self._last_moment()
        session.backward_moment = moment
        if moment is None or gradient is not None or loss.numel() != 1:
            return
        self._seen[moment] = self._seen.get(moment, 0) + 1
        topology = session.topology
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
        # What clip_grad_norm_ itself calls, so that copies of its name do not matter.
        patches.wrap_call(clip_grad, "_get_total_norm", session.guarded(self._norm_of))
        self.observed = patches.wrap_call(
            clip_grad, "_clip_grads_with_norm_", session.guarded(self._clip)
        )

    def _norm_of(self, tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> None:
        self._norm_type = float(norm_type)

    def _clip(
        self, tensors: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any
    ) -> None:
        session, parameters = self._session, self._backward_done()
        if parameters is None:
            return
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
            norm.detach().to(torch.float32).reshape(()),
            iteration=session.iteration,
            pass_="optimizer",
        )
