"""Parameters of a plain torch model and their gradients.

`grad_local` is the sum over the iteration's micro-batches of what backward hands to each parameter,
read before DistributedDataParallel reduces it. `grad_reduced` is what the optimizer would find,
before clipping.

Scales. The logical loss is the one whose gradient the optimizer applies. How the user's loop
normalises its loss cannot be seen and need not be: gradients are taken as the loop makes them,
summed over micro-batches. DistributedDataParallel averages over dp, so every rank's loss, and with
it each activation gradient, is dp times its share: all of them have the scale 1/dp, and local
parameter gradients and losses are terms of a sum over dp. A loop that divides by the number of its
own micro-batches thus gives the same logical values for every dp. One whose hook sums, that reduces
gradients itself by a sum, or that multiplies them after the backward, gives others by one factor,
which a check reads from what is stepped (note "loss_unit").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.dtensors import Unplaceable, held_tensor, is_dtensor
from ttrace.adapters.torch.first_hooks import register_first
from ttrace.adapters.torch.loop_session import Local, LoopSession
from ttrace.adapters.torch.loss_scale import parameters_of
from ttrace.adapters.torch.wrappers import canonical_name
from ttrace.capture.found_gradients import what_it_holds
from ttrace.capture.graft import Graft
from ttrace.capture.optimizer_states import beside, stepped
from ttrace.capture.parameter_store import Piece
from ttrace.capture.placed import ParameterRule, Scale
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.tensor_bytes import has_memory, unwrapped

# Of BatchNorm. It grows with every forward that a rank has made, and of a batch that more ranks
# share each makes fewer: only what training starts with is comparable.
_COUNTERS = ("num_batches_tracked",)
_GROWN = "a count of the forwards that its rank has made so far"


class Store:
    """All parameters of the model, under their own names, tied ones once. See
    capture/parameter_store.py."""

    def __init__(
        self,
        session: LoopSession,
        root: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        rewrite: Callable[[], Rewrite | None],
    ) -> None:
        """`rewrite()`: what puts other gradients in place of those that arrive, now."""
        self._root = root
        self._optimizers = optimizers
        self._rewrite = rewrite
        self._session = session
        self._named = {canonical_name(name): p for name, p in root.named_parameters()}
        self._others: Mapping[int, torch.Tensor] = {}  # leaves of a leg
        self._begun: dict[str, tuple[int, int]] = {}  # buffers, as the run began with them
        self._handles: dict[str, Any] = {}  # by parameter
        self.watch()

    def watch(self) -> None:
        """Parameters that want a gradient by now: a loop may switch some off and on."""
        for fqn, parameter in self._named.items():
            if parameter.requires_grad and fqn not in self._handles:
                self._handles[fqn] = register_first(parameter, self._arriving(fqn))

    def remove(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def begin(self) -> None:
        """Before the first forward."""
        self._session.now.drop_gradients()

    def parameters(self, role: str) -> Iterator[Piece]:
        """All of them. What cannot be placed is said to be missing under `role`."""
        for fqn, parameter in self._named.items():
            try:
                local = self._session.local(parameter, "")
            except Unplaceable as reason:
                self._session.not_recorded(fqn, role, "", str(reason))
                continue
            yield _piece(fqn, local)

    def record_buffers(self, graft: Graft | None) -> None:
        """As the iteration's first forward finds them. DistributedDataParallel may have given rank
        0's to all by then, or not. What the run begins with is that of rank 0. Later each rank's
        are what the forwards of the iterations before made: they are not replaced again, so that
        what is computed with a wrong one shows it."""
        session, iteration = self._session, self._session.iteration
        begins = iteration == session.settings.iterations[0]
        topology = session.topology
        # A dimension that cuts tensors inside a module may make a buffer a rank's own.
        shared = all(
            size == 1 for name, size in topology.size.items() if name not in topology.reduction
        )
        # A forward may have put another tensor in a buffer's place.
        for name, buffer in self._root.named_buffers():
            fqn = canonical_name(name)
            if iteration > 0 and fqn.rpartition(".")[2] in _COUNTERS:
                session.not_recorded(fqn, "buffer", "", _GROWN)
                continue
            is_float = buffer.is_floating_point()
            may_be_trained = begins and shared and is_float and not is_dtensor(buffer)
            first = topology.batch_part == 0
            if graft is not None and (may_be_trained or (first and (begins or not is_float))):
                graft.buffer(fqn, buffer, iteration, may_be_trained=may_be_trained)
            if begins:
                self._begun[fqn] = _version(buffer)
            self._record_buffer(fqn, buffer, iteration)

    def record_buffers_left(self) -> None:
        """In a leg, after its last forward: as the next iteration's first would find them."""
        session, following = self._session, self._session.iteration + 1
        if following not in session.settings.iterations:
            return
        for name, buffer in self._root.named_buffers():
            fqn = canonical_name(name)
            if fqn.rpartition(".")[2] not in _COUNTERS:
                self._record_buffer(fqn, buffer, following)

    def _record_buffer(self, fqn: str, buffer: torch.Tensor, iteration: int) -> None:
        """Of rank 0, and of others what they have made their own."""
        session = self._session
        changed = self._begun.get(fqn) != _version(buffer)
        if session.topology.batch_part == 0 or (buffer.is_floating_point() and changed):
            session.record(fqn, "buffer", "", buffer, iteration=iteration, pass_="forward")

    def _arriving(self, fqn: str) -> Callable[[torch.Tensor], torch.Tensor | None]:
        def arrived(gradient: torch.Tensor | None) -> torch.Tensor | None:
            session = self._session
            if gradient is None:
                return None
            session.now.micro_batches.close()
            if not session.recording or session.now.backward_moment is None:
                return None
            gradients = session.now.gradients
            is_first = gradients.arrives(fqn)
            session.now.own_reduction.arrived(fqn, session.now.backward_moment.micro_batch)
            replaced = None
            rewrite = self._rewrite()
            if rewrite is not None:
                topology = session.topology
                among = [topology.coordinate[name] for name in topology.reduction]
                coordinate = f"dp={','.join(map(str, among))}" if among else ""
                replaced = rewrite.parameter_gradient(fqn, ParameterRule(), coordinate, gradient)
                gradient = gradient if replaced is None else replaced
            is_real = session.leg == "real"
            if is_first and is_real:
                gradients.find(fqn, what_it_holds(self._gradient_of(fqn)))
            gradients.add(fqn, gradient, measured=is_real and not is_dtensor(gradient))
            return replaced

        return self._session.guarded(arrived)

    @contextmanager
    def gradients_of(self, others: Mapping[int, torch.Tensor]) -> Iterator[None]:
        """Inside, gradients are those of other leaves, given by ids of the parameters."""
        self._others = others
        try:
            yield
        finally:
            self._others = {}

    def _leaf(self, fqn: str) -> torch.Tensor:
        parameter = self._named[fqn]
        return self._others.get(id(parameter), parameter)

    def leaves(self) -> list[torch.Tensor]:
        """That want gradients, in an order that is the same on all ranks."""
        return [leaf for leaf in map(self._leaf, self._named) if leaf.requires_grad]

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Those that the loop has now, without DTensors' wrapping."""
        for fqn in self._named:
            gradient = self._gradient_of(fqn)
            if gradient is not None:
                yield fqn, gradient

    def _gradient_of(self, fqn: str) -> torch.Tensor | None:
        leaf = self._leaf(fqn)
        # torch.func.functional_call may have put others in place of parameters: torch warns.
        gradient: Any = leaf.grad if leaf.is_leaf else None
        return None if gradient is None else held_tensor(gradient)

    def found_gradients(self) -> Mapping[str, torch.Tensor | None]:
        return self._session.now.gradients.found

    def gradients_not_reached(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        """Those of parameters that no backward of this iteration has reached."""
        arrived = self._session.now.gradients.arrived
        for fqn, parameter in self._named.items():
            if parameter.requires_grad and fqn not in arrived:
                yield fqn, self._gradient_of(fqn)

    def sizes_of(self, names: Iterable[str]) -> dict[str, int]:
        """How many elements these parameters have on this rank."""
        return {fqn: unwrapped(self._named[fqn]).numel() for fqn in names}

    def has(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether one of these is the model's."""
        return bool(self._names_of(parameters))

    def arrived(self, of: Iterable[torch.Tensor]) -> list[str]:
        """Those of these parameters that this iteration's backward has reached."""
        return self._session.now.gradients.reached(self._names_of(of))

    def select(self, of: Iterable[torch.Tensor] | None, unscaled: bool) -> None:
        """What is given out next: of all parameters, or of those that an optimizer steps, once an
        iteration. `unscaled`: the loss scale has been taken out of what is reduced."""
        wanted = None if of is None else self._names_of(of)
        self._session.now.gradients.select(self._named, wanted, unscaled)

    def local_gradients(self) -> Iterator[Piece]:
        topology, gradients = self._session.topology, self._session.now.gradients
        numerator, denominator = gradients.loss_scale
        for fqn, total in gradients.take_sums():
            terms = topology.summed()
            is_part = topology.reduction_parts > 1 and self._session.leg == "real"
            if is_part and not gradients.parts.has(fqn) and not is_dtensor(total):
                gradients.parts.add(fqn, total)
            yield Piece(fqn, total, terms, (numerator, denominator * topology.reduction_parts))
        adds_nothing = self._session.now.own_reduction.adds_nothing_to
        for fqn in adds_nothing(gradients.selected, gradients.arrived):
            if self._gradient_of(fqn) is not None:
                nothing = torch.zeros_like(self._named[fqn])
                yield Piece(fqn, nothing, topology.summed())

    def note_parts(self) -> None:
        gradients = self._session.now.gradients
        gradients.parts.note(self._session, gradients.selected)

    def reduced_gradients(self) -> Iterator[Piece]:
        topology, gradients = self._session.topology, self._session.now.gradients
        over = topology.reduction
        for fqn in gradients.selected:
            gradient = self._leaf(fqn).grad
            if gradient is None:
                continue
            try:
                local = self._session.local(gradient, "")
            except Unplaceable as reason:
                self._session.not_recorded(fqn, "grad_reduced", "", str(reason))
                continue
            gradients.give_out(fqn, gradient)
            yield _piece(fqn, local, gradients.reduced_scale, over)

    def backward_over(self) -> None:
        """A backward has added to gradients, and they are reduced."""
        several = len(self._optimizers) > 1
        self._session.now.gradients.backward_over(self._present(), several)

    def step_over(self, parameters: Iterable[torch.Tensor]) -> None:
        """An optimizer has stepped these: what reaches them now is for another iteration."""
        self._session.now.gradients.step_over(self._names_of(parameters))

    def changed_knowingly(self) -> None:
        """What has just changed gradients is known, and noted."""
        self._session.now.gradients.changed_knowingly(self._present())

    def changed_otherwise(self) -> bool:
        """Whether a step would find other gradients than were given out."""
        return self._session.now.gradients.changed_otherwise(self._present())

    def reduction_order(self) -> list[str]:
        return self._session.now.gradients.order()

    def _present(self) -> dict[str, Any]:
        """The gradients that there are, as parameters have them."""
        of_leaves = {fqn: p.grad for fqn, p in self._named.items() if p.is_leaf}
        return {fqn: gradient for fqn, gradient in of_leaves.items() if gradient is not None}

    def _names_of(self, parameters: Iterable[torch.Tensor]) -> set[str]:
        wanted = {id(parameter) for parameter in parameters}
        return {fqn for fqn, parameter in self._named.items() if id(parameter) in wanted}

    def _names_by_id(self) -> dict[int, str]:
        return {id(parameter): fqn for fqn, parameter in self._named.items()}

    def states(self) -> Iterator[tuple[str, Piece]]:
        names = self._names_by_id()
        for optimizer in self._optimizers:
            inner = getattr(optimizer, "optim", optimizer)  # torch's ZeroRedundancyOptimizer
            for arg, parameter, value in stepped(inner):
                fqn = names.get(id(parameter))
                if fqn is None:
                    continue
                try:
                    local = self._session.local(value, "")
                except Unplaceable as reason:
                    self._session.not_recorded(fqn, "optim_state", arg, str(reason))
                    continue
                yield arg, _piece(fqn, local)

    def parameters_used(self) -> Iterator[Piece]:
        for fqn, parameter in self._named.items():
            local = unwrapped(parameter)
            if has_memory(local):
                yield Piece(fqn, local.detach())

    def states_beside(self) -> Iterator[tuple[str, Piece]]:
        names = self._names_by_id()
        for optimizer in self._optimizers:
            for arg, parameter, value in beside(getattr(optimizer, "optim", optimizer)):
                fqn = names.get(id(parameter))
                local = unwrapped(value)
                if fqn is not None and has_memory(local):
                    yield arg, Piece(fqn, local)

    def write_back(self) -> None:
        """An optimizer of torch steps the parameters themselves."""

    def are(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether the gradients of these are those of all, so that a norm is the norm. One of
        several optimizers may have those of its own, while others have none yet."""
        mine = {id(gradient) for gradient in self._present().values()}
        if not mine or {id(p.grad) for p in parameters if p.grad is not None} != mine:
            return False
        if len(self._optimizers) == 1:
            return True
        given = {id(p) for p in parameters}
        # A loop may have switched the gradients of others off.
        stepped = {id(p) for optimizer in self._optimizers for p in parameters_of(optimizer)}
        own = self._named.values()
        return all(id(p) in given for p in own if p.requires_grad or id(p) in stepped)


def _piece(
    fqn: str, local: Local, scale: Scale = (1, 1), reduced_over: tuple[str, ...] = ()
) -> Piece:
    return Piece(fqn, local.tensor, local.placements, scale, reduced_over, whole=local.whole)


def _version(tensor: Any) -> tuple[int, int]:
    """Another one after any change in place, and for another tensor."""
    local = held_tensor(tensor)
    return id(tensor), 0 if local.is_inference() else local._version
