"""Where a DTensor lies, as placements of the trace, and what a rank holds of it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ttrace.capture.tensor_bytes import plain

if TYPE_CHECKING:
    from ttrace.adapters.torch.topology import Topology

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed, or too old for DTensor
    DTensor = None  # type: ignore[assignment, misc]


class Unplaceable(Exception):
    """Nothing certain can be said about where a tensor lies."""


def is_dtensor(value: Any) -> bool:
    return DTensor is not None and isinstance(value, DTensor)


def dtensor_placements(tensor: Any, topology: Topology) -> str:
    """The placements of a DTensor as text of the trace. Raises Unplaceable."""
    return spec_placements(tensor.placements, tensor.shape, tensor.device_mesh, topology)


def spec_placements(placements: Any, shape: torch.Size, mesh: Any, topology: Topology) -> str:
    """Raises Unplaceable."""
    words = []
    cut = list(shape)
    last: dict[int, int] = {}  # of each dimension of the tensor, which of the grid's cut it last
    for names, placement in zip(topology.dims_of(mesh), placements, strict=True):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            if placement.reduce_op not in ("sum", "avg"):
                raise Unplaceable(f"a reduction by {placement.reduce_op} is pending")
            words += [f"{name}:Partial({placement.reduce_op})" for name in names]
            continue
        dim = placement.dim % len(shape)
        sections = getattr(placement, "split_factor", 1)
        pieces = prod(topology.size[name] for name in names)
        if cut[dim] % sections or (len(names) > 1 and (sections > 1 or cut[dim] % pieces)):
            raise Unplaceable(f"{shape[dim]} does not divide evenly among the ranks")
        kind = f"StridedShard({dim},{sections})" if sections > 1 else f"Shard({dim})"
        for name in names:
            place = topology.grid.names.index(name)
            if place < last.get(dim, -1):
                raise Unplaceable(
                    f"dimension {dim} is cut in another order than ranks are numbered"
                )
            last[dim] = place
            section = cut[dim] // sections
            cut[dim] = sections * chunk(section, topology.size[name], topology.coordinate[name])[1]
            words.append(f"{name}:{kind}")
    return " ".join(words)


def without_rows(placements: str, batch_dim: int) -> str:
    """Without cuts through the batch: these are said by the rows of a record."""
    if batch_dim < 0:
        return placements
    cut = f":Shard({batch_dim})"
    return " ".join(word for word in placements.split() if not word.endswith(cut))


def chunk(size: int, pieces: int, index: int) -> tuple[int, int]:
    """Begin and size of a piece, as torch.chunk cuts: all but the last that are not empty have the
    size of the first."""
    first = -(-size // pieces)
    begin = min(index * first, size)
    return begin, min(first, size - begin)


def first_row(placements: str, batch_dim: int, rows: int, topology: Topology) -> int:
    """Of the rows of the batch those that this rank has begin with this one."""
    begin = 0
    for word in placements.split():
        name, _, kind = word.partition(":")
        if kind == f"Shard({batch_dim})":
            at, rows = chunk(rows, topology.size[name], topology.coordinate[name])
            begin += at
    return begin


def rows_cut(placements: str, batch_dim: int, topology: Topology) -> tuple[int, int]:
    """Into how many pieces the batch is cut, and the number of this rank's."""
    pieces, index = 1, 0
    for word in placements.split():
        name, _, kind = word.partition(":")
        if kind == f"Shard({batch_dim})":
            pieces *= topology.size[name]
            index = index * topology.size[name] + topology.coordinate[name]
    return pieces, index


def held_tensor(tensor: Any) -> torch.Tensor:
    """What holds a DTensor's values on this rank, as it is; of another tensor, itself."""
    return tensor._local_tensor if is_dtensor(tensor) else tensor


def local_tensor(tensor: Any) -> torch.Tensor:
    """What this rank holds of a DTensor, without entering it into the autograd graph.

    An embedding whose table is cut by rows leaves arbitrary values in the rows of foreign tokens
    until it is reduced: they count as zero.
    """
    local = plain(tensor._local_tensor.detach())
    for dim, placement in enumerate(tensor.placements):
        mask = getattr(placement, "mask_buffer", None)
        # A mesh dimension of one rank masks nothing, and torch then keeps no mask.
        if mask is not None and tensor.device_mesh.size(dim) > 1:
            if mask.data is None:
                raise Unplaceable("masked rows of a partial embedding are not known any more")
            local = local.clone()
            mask.apply_mask(local)
    return local
