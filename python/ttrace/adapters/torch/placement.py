"""Where a plain tensor lies in a model that is cut by DTensors.

Parallel styles hand on plain local tensors, which do not say what they are a part of. The autograd
graph does: it is followed from the tensor back to the `DTensor.to_local()` calls from which it was
computed. What is computed from replicated tensors only is replicated; what elementwise operations
make of one kind of shard is the same kind of shard. Anything else stays unknown, and is not
recorded: an alignment that was guessed could hide a bug or invent one.

Such a call also says where the gradient of the plain tensor lies: as the DTensor itself, or as its
`grad_placements` say. With Partial() the gradient on each rank is a term of a sum. Backward is
linear, so this holds for everything between that call and the next DTensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from ttrace.adapters.torch.dtensors import Unplaceable, chunk, is_dtensor, spec_placements
from ttrace.adapters.torch.private_names import PROVENANCE
from ttrace.adapters.torch.topology import Topology
from ttrace.capture.tensor_bytes import unwrapped

# Names of autograd nodes whose result has, element by element, the indices of their operands.
_ELEMENTWISE = frozenset(
    f"{name}Backward"
    for name in (
        *("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Exp", "Log", "Sqrt", "Rsqrt", "Abs"),
        *("Gelu", "Silu", "Relu", "LeakyRelu", "Elu", "Tanh", "Sigmoid", "Softplus", "Mish"),
        *("Hardswish", "Hardtanh", "NativeDropout", "MaskedFill", "Where", "Clamp"),
        *("Clone", "Alias", "ToCopy"),
        "Substitute",  # what a leg puts in a tensor's place
    )
)


class _Source(NamedTuple):
    """A call of `DTensor.to_local()`."""

    placements: str  # "": all ranks got the same
    shape: tuple[int, ...] | None  # of a part; None where all ranks got the same
    whole: tuple[int, ...] | None  # of what it is a part of
    gradient: str | None  # placements; None: those that were declared do not fit the part's shape


# What something was computed from; empty: from no DTensor.
_Sources = frozenset[_Source]


class Provenance:
    """Placements of plain tensors, within one forward of the model and its backward."""

    def __init__(
        self,
        topology: Topology,
        given: Iterable[torch.Tensor] = (),
        lies: dict[str, str | None] | None = None,
    ) -> None:
        """`given`: the model's arguments. They may be the same on all ranks of a tensor-parallel
        group or parts of something: what the model makes of them says it, see `declared`, and
        until then a word stands for it, to be looked up in `lies`."""
        self._topology = topology
        self._known: dict[Any, _Sources | Unplaceable] = {}
        self._given: dict[int, str] = {}  # storage -> the word that stands for its placements
        self._numels: dict[str, int] = {}
        self._lies: dict[str, str | None] = {} if lies is None else lies
        # Without a name of torch's, a call of to_local() looks as if it was none.
        self._lost = next((str(name) for name in PROVENANCE if name.is_there is False), None)
        if not topology.tensor_dims:
            return
        for tensor in given:
            if not is_dtensor(tensor):
                word = self._given.setdefault(_storage(tensor), f"?{len(self._lies)}")
                self._numels[word] = max(tensor.numel(), self._numels.get(word, 0))
                self._lies.setdefault(word, None)

    def declared(self, local: Any, mesh: Any, placements: Any) -> str | None:
        """The model makes a DTensor of a plain tensor. Returns the placements of an argument."""
        if not torch.is_tensor(local) or is_dtensor(local) or placements is None:
            return None
        word = self._given.get(_storage(local))
        if word is None or local.numel() != self._numels[word] or self._lies[word] is not None:
            return None
        shape = list(local.shape)
        for i, placement in enumerate(placements):
            if placement.is_shard():
                shape[placement.dim] *= mesh.size(i)
        try:
            self._lies[word] = spec_placements(placements, torch.Size(shape), mesh, self._topology)
        except Unplaceable:
            return None
        return self._lies[word]

    def of_argument(self, tensor: torch.Tensor) -> str:
        """Of one of the model's arguments; anything else is the same on all ranks."""
        return self._given.get(_storage(tensor), "") if not is_dtensor(tensor) else ""

    def placements(self, tensor: torch.Tensor) -> str:
        if not self._topology.tensor_dims:
            return ""
        if tensor.grad_fn is None:
            word = self._given.get(_storage(tensor))
            if word is not None and tensor.numel() == self._numels[word]:
                return self._lies[word] if self._lies[word] is not None else word  # type: ignore[return-value]
            if word is not None and self._lies[word] == "":
                return ""
            raise Unplaceable("a plain tensor without history among DTensors")
        sources = self._sources(tensor)
        if not sources:
            return ""
        ((placements, shape),) = {(source.placements, source.shape) for source in sources}
        if shape is not None and tuple(tensor.shape) != shape:
            raise Unplaceable("a part of a DTensor, broadcast to another shape")
        return placements

    def whole(self, tensor: torch.Tensor) -> tuple[int, ...] | None:
        """The shape of what a tensor with `placements` is a part of; None: of none, or parts are
        alike."""
        if not self._topology.tensor_dims or tensor.grad_fn is None:
            return None
        return next((source.whole for source in self._sources(tensor)), None)

    def gradient_placements(self, tensor: torch.Tensor) -> str:
        """Where the gradient lies of a tensor of which `placements` says where it lies itself."""
        if not self._topology.tensor_dims or tensor.grad_fn is None:
            return self.placements(tensor)
        declared = {source.gradient for source in self._sources(tensor)} or {""}
        if len(declared) > 1:
            raise Unplaceable("made of DTensors whose gradients are declared to lie differently")
        (words,) = declared
        if words is None:
            raise Unplaceable("its gradient is declared to be a part of another shape")
        return words

    def _sources(self, tensor: torch.Tensor) -> _Sources:
        if self._lost is not None:
            raise Unplaceable(f"this torch has no {self._lost}")
        sources = self._of(tensor.grad_fn)
        if isinstance(sources, Unplaceable):
            raise sources
        return sources

    def _of(self, last: Any) -> _Sources | Unplaceable:
        """Depth first, without recursion: a graph may be as deep as the model."""
        known, stack = self._known, [last]
        while stack:
            node = stack[-1]
            if node in known:
                stack.pop()
                continue
            spec = getattr(node, "dtensor_spec", None)
            if spec is not None:
                known[node] = self._of_spec(spec, getattr(node, "grad_placements", None))
                continue
            before = [following for following, _ in node.next_functions if following is not None]
            missing = [following for following in before if following not in known]
            if missing:
                stack += missing
            else:
                known[node] = _combined(node, [known[following] for following in before])
        return known[last]

    def _of_spec(self, spec: Any, declared: Any) -> _Sources | Unplaceable:
        """`declared`: the placements of the gradient that the call was given, or None."""
        try:
            words = spec_placements(spec.placements, spec.shape, spec.mesh, self._topology)
        except Unplaceable as reason:
            return reason
        if any(placement.is_partial() for placement in spec.placements):
            return Unplaceable("computed from a sum that is still pending")
        shape = _local_shape(spec, spec.placements)
        gradient: str | None = words
        if declared is not None:
            try:
                gradient = spec_placements(declared, spec.shape, spec.mesh, self._topology)
            except Unplaceable:
                gradient = None
            if _local_shape(spec, declared) != shape:
                gradient = None
        whole = tuple(spec.shape)
        return frozenset(
            {_Source(words, shape if words else None, whole if words else None, gradient)}
        )


def _local_shape(spec: Any, placements: Any) -> tuple[int, ...]:
    shape = list(spec.shape)
    for i, placement in enumerate(placements):
        if not placement.is_replicate() and not placement.is_partial():
            sections = getattr(placement, "split_factor", 1)
            section = shape[placement.dim] // sections
            _, size = chunk(section, spec.mesh.size(i), spec.mesh.get_local_rank(i))
            shape[placement.dim] = sections * size
    return tuple(shape)


def _combined(node: Any, operands: list[_Sources | Unplaceable]) -> _Sources | Unplaceable:
    sources: _Sources = frozenset()
    for operand in operands:
        if isinstance(operand, Unplaceable):
            return operand
        sources |= operand
    if sources and _is_opaque(node):
        # It may cut, gather or reduce, in either direction.
        return Unplaceable(f"what was a DTensor went through {node.name()}")
    parts = frozenset(source for source in sources if source.placements)
    if not parts:
        return sources
    if len({(source.placements, source.shape, source.whole) for source in parts}) > 1:
        return Unplaceable("computed from differently cut tensors")
    if node.name().rstrip("0123456789") not in _ELEMENTWISE:
        return Unplaceable(f"a part of a DTensor went through {node.name()}")
    # What all ranks have alike was broadcast to the part, and has a gradient of its own shape.
    return parts


def _is_opaque(node: Any) -> bool:
    """Whether it is a function that somebody wrote, in Python or in C++, with its own backward."""
    if isinstance(node, BackwardCFunction):
        return node.name() != "SubstituteBackward"
    return "CppNode" in node.name()


def _storage(tensor: torch.Tensor) -> int:
    return unwrapped(tensor).untyped_storage().data_ptr()


def batch_dim(shape: torch.Size, rows: int) -> int:
    """The dimension that counts the micro-batch's rows, or -1: the first if it has that size,
    else the only one that has."""
    if not shape or shape[0] == rows:
        return 0 if shape else -1
    found = [dim for dim, size in enumerate(shape) if size == rows]
    if len(found) > 1:
        raise Unplaceable(f"dimensions {found} all have the size of the micro-batch")
    return found[0] if found else -1
