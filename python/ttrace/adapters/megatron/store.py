"""Parameters, gradients and what the optimizer holds, under Megatron's DistributedDataParallel.

Scaling by 1 / (dp * cp) happens within a bucket's reduction, so that local gradients are read right
before it, whether it overlaps with backward or not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ttrace.adapters.megatron.distributed_optimizer import own_ranges
from ttrace.adapters.megatron.loss_scale import divided
from ttrace.adapters.megatron.model import Model, ParameterEntry
from ttrace.adapters.megatron.names import TIED_WEIGHT, has_copies_of_embedding
from ttrace.adapters.megatron.optimizer_state import states
from ttrace.adapters.megatron.unsupported import (
    is_sharded,
    uses_cuda_graphs,
    uses_distributed_optimizer,
)
from ttrace.capture.found_gradients import what_it_holds
from ttrace.capture.gradient_parts import GradientParts
from ttrace.capture.parameter_store import Part, Piece
from ttrace.capture.placed import Scale
from ttrace.capture.tensor_bytes import on_host


class Store:
    """See capture/parameter_store.py."""

    def __init__(self, model: Model) -> None:
        self._optimizer: Any = None  # Megatron's, once it is there
        self._model = model
        self._local_done: dict[str, None] = {}  # in the order of reduction
        self._loss_scale = 1.0  # of the iteration that runs, or ran last
        # With a distributed optimizer only a rank's own part of main_grad is reduced.
        self._ranges = own_ranges(model) if uses_distributed_optimizer(model) else None
        self._said = False
        self._found: Mapping[str, torch.Tensor | None] = {}
        self._parts = GradientParts()
        self._handles: list[Any] = []

    def watch(self) -> None:
        """Notes from now on how large the parts of gradients are."""
        # Of a captured graph a hook would become a part; what is sharded is not recorded.
        if is_sharded(self._model) or uses_cuda_graphs(self._model.config):
            return
        self._handles = [
            entry.original.register_hook(self._arriving(entry))
            for entry in self._model.parameters()
            if entry.original.requires_grad
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def step_by(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def begin(self) -> None:
        self._local_done.clear()
        self._parts = GradientParts()
        if self._model.session.leg == "real":
            # The schedule's backward adds to what is there now.
            self._found = {fqn: what_it_holds(gradient) for fqn, gradient in self.gradients()}

    def found_gradients(self) -> Mapping[str, torch.Tensor | None]:
        return self._found

    def owned_by(self, owner: torch.nn.Module) -> Iterator[Piece]:
        """The parameters of one module."""
        for entry in self._model.parameters():
            if entry.owner is owner:
                yield Piece(entry.fqn, entry.original, entry.rule.placements)

    def gradients(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        for entry in self._model.parameters():
            yield entry.fqn, gradient_of(entry)

    def of_bucket_group(self, group: Any) -> Iterator[Piece]:
        """Local gradients that are about to be reduced."""
        for bucket in group.buckets:
            for parameter in bucket.params_list:
                entry = self._model.entry_of(parameter)
                if entry is not None:
                    yield from self._local(entry)

    def local_gradients(self) -> Iterator[Piece]:
        """What nobody reduced is local still."""
        for entry in self._model.parameters():
            yield from self._local(entry)
        yield from self._zero_term_of_tied_weight()

    def reduction_order(self) -> list[str]:
        return list(self._local_done)

    def _arriving(self, entry: ParameterEntry) -> Callable[[torch.Tensor | None], None]:
        session = self._model.session

        def arrived(gradient: torch.Tensor | None) -> None:
            if gradient is None or not session.recording or session.leg != "real":
                return
            # A fused kernel adds to the main gradient itself, in fp32, and rounds nothing.
            if not getattr(entry.original, "grad_added_to_main_grad", False):
                self._parts.add(entry.fqn, gradient)

        return session.guarded(arrived)

    def note_parts(self) -> None:
        self._parts.note(self._model.session, self._local_done)

    def _local(self, entry: ParameterEntry) -> Iterator[Piece]:
        gradient = gradient_of(entry)
        if gradient is None or entry.fqn in self._local_done:
            return
        self._local_done[entry.fqn] = None
        rule = entry.rule
        yield Piece(entry.fqn, gradient, rule.local_placements, self._scale(rule.local_scale))

    def _zero_term_of_tied_weight(self) -> Iterator[Piece]:
        """The gradient of an embedding is the sum of the first and the last stage's terms, where
        the last has a copy of its weight.

        As placements go that is Partial over pp, of which every stage must hold a term. Stages in
        between have no copy of the weight; their term is zero, and is written as such.
        """
        topology, root = self._model.topology, self._model.chunks[0].root
        stages, stage = topology.size["pp"], topology.coordinate["pp"]
        if stages <= 2 or not has_copies_of_embedding(root) or stage in (0, stages - 1):
            return
        like = next((g for _, g in self.gradients() if g is not None), None)
        if like is None:
            return
        shape = (root.vocab_size // topology.size["tp"], root.config.hidden_size)
        zeros = torch.zeros((), dtype=like.dtype).expand(shape)
        rule = self._model.chunks[0].rules.tied_weight()
        yield Piece(TIED_WEIGHT, zeros, rule.local_placements, self._scale(rule.local_scale))

    def _scale(self, scale: Scale) -> Scale:
        if self._model.batch is not None:
            self._loss_scale = self._model.batch.loss_scale
        return divided(scale, self._loss_scale)

    def reduced_gradients(self) -> Iterator[Piece]:
        if is_sharded(self._model):
            self._say_not_recorded()
            return
        scale = self._scale((1, 1))
        for entry in self._model.parameters():
            gradient = gradient_of(entry)
            if gradient is not None:
                yield from self._own(entry, gradient, scale, entry.rule.reduced_over)

    def _own(
        self,
        entry: ParameterEntry,
        tensor: torch.Tensor,
        scale: Scale = (1, 1),
        reduced_over: tuple[str, ...] = (),
    ) -> Iterator[Piece]:
        """What this rank has to itself of a tensor that is shaped as a parameter, or is that part
        of one already."""
        fqn, rule, shape = entry.fqn, entry.rule, entry.original.shape
        if self._ranges is None or rule.owned_placements == rule.placements:
            # Of a group of one rank the part is the whole, flat perhaps.
            if tensor.numel() == shape.numel():
                yield Piece(fqn, tensor.view(shape), rule.placements, scale, reduced_over)
            return
        begin, end = self._ranges.get(id(entry.original), (0, 0))
        if tensor.shape == shape:
            tensor = tensor.detach().reshape(-1)[begin:end]
        if begin < end and tensor.numel() == end - begin:
            part = Part(begin, tuple(shape))
            yield Piece(fqn, tensor, rule.owned_placements, scale, reduced_over, part)

    def states(self) -> Iterator[tuple[str, Piece]]:
        if self._optimizer is None or is_sharded(self._model):
            return
        for arg, parameter, value in states(self._optimizer):
            entry = self._model.entry_of(parameter)
            if entry is None:
                continue
            if arg == "step":
                yield arg, Piece(entry.fqn, value)
            else:
                for piece in self._own(entry, value.detach()):
                    yield arg, piece

    def _say_not_recorded(self) -> None:
        if self._said:
            return
        self._said = True
        reason = "no rank holds the whole reduced gradient"
        for entry in self._model.parameters():
            self._model.session.note(
                "not_recorded", fqn=entry.fqn, role="grad_reduced", arg="", reason=reason
            )

    def parameters_used(self) -> Iterable[Piece]:
        """A distributed optimizer gathers them while forwards run."""
        return ()

    def states_beside(self) -> Iterable[tuple[str, Piece]]:
        """Its optimizers keep what has a name here."""
        return ()

    def write_back(self) -> None:
        """Masters follow the working copies."""
        if self._optimizer is not None:
            self._optimizer.reload_model_params()

    def fingerprint(self) -> list[bytes]:
        """Enough to notice that the user's loop changed gradients. Not for comparing runs. Bits, as
        a NaN is not equal to itself."""
        found = [
            torch.stack([gradient.sum(), gradient.abs().max()]).double()
            for _, gradient in self.gradients()
            if gradient is not None and gradient.numel()
        ]
        return [struct.pack("2d", *values.tolist()) for values in on_host(found)]


def gradient_of(entry: ParameterEntry) -> torch.Tensor | None:
    gradient = getattr(entry.original, "main_grad", None)
    return entry.original.grad if gradient is None else gradient
