"""Which parallelism a plain torch model uses, as a mesh of the trace.

The dimensions are `dp`, the process group of DistributedDataParallel, and those of the device mesh
of the model's DTensor parameters, under their own names ("tp" where they have none).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed, or too old for DTensor
    DTensor = None  # type: ignore[assignment, misc]


class Unplaceable(Exception):
    """Nothing certain can be said about where a tensor lies."""


@dataclass(frozen=True)
class Topology:
    """The mesh, this rank's place in it, and the device mesh of DTensors if there is one."""

    size: dict[str, int] = field(default_factory=dict)
    coordinate: dict[str, int] = field(default_factory=dict)
    dp_name: str | None = None
    device_mesh: Any = None
    tensor_dims: tuple[str, ...] = ()  # names of device_mesh's dimensions
    rank: int = 0
    world_size: int = 1

    @property
    def dp_size(self) -> int:
        return self.size[self.dp_name] if self.dp_name else 1

    @property
    def dp_rank(self) -> int:
        return self.coordinate[self.dp_name] if self.dp_name else 0

    def dp_placement(self, placement: str) -> str:
        """`placement` over data-parallel ranks, or nothing without them."""
        return f"{self.dp_name}:{placement}" if self.dp_name else ""

    @staticmethod
    def of(model: nn.Module, ddp: DistributedDataParallel | None) -> Topology:
        """Raises RuntimeError with a reason for a parallelism that this adapter does not know."""
        initialized = dist.is_available() and dist.is_initialized()
        world = dist.get_world_size() if initialized else 1
        size: dict[str, int] = {}
        coordinate: dict[str, int] = {}
        refuse_fully_sharded(model)
        if ddp is not None:
            group = ddp.process_group
            size["dp"] = dist.get_world_size(group)
            coordinate["dp"] = dist.get_rank(group)
        mesh = _device_mesh(model)
        names: tuple[str, ...] = ()
        if mesh is not None:
            names = tuple(mesh.mesh_dim_names or _default_names(mesh.ndim))
            if size.keys() & set(names):
                raise RuntimeError("DistributedDataParallel around a model with DTensors on 'dp'")
            size |= {name: mesh.size(i) for i, name in enumerate(names)}
            coordinate |= dict(zip(names, mesh.get_coordinate(), strict=True))
        ranks = 1
        for count in size.values():
            ranks *= count
        if ranks != world:
            raise RuntimeError(
                f"DistributedDataParallel and DTensors account for {ranks} of {world} ranks:"
                " how the others take part cannot be seen"
            )
        if not size:  # a mesh has at least one dimension
            size, coordinate = {"dp": 1}, {"dp": 0}
        rank = dist.get_rank() if initialized else 0
        return Topology(
            size, coordinate, "dp" if ddp is not None else None, mesh, names, rank, world
        )


def refuse_fully_sharded(model: nn.Module) -> None:
    """FSDP gathers parameters in hooks of its own; nothing here accounts for that."""
    names = ("FSDPModule", "FullyShardedDataParallel")
    if any(base.__name__ in names for m in model.modules() for base in type(m).__mro__):
        raise RuntimeError("fully sharded data parallelism (FSDP) is not supported")


def _default_names(count: int) -> tuple[str, ...]:
    return ("tp",) if count == 1 else tuple(f"tp{i}" for i in range(count))


def _device_mesh(model: nn.Module) -> Any:
    meshes = []
    for parameter in model.parameters():
        if is_dtensor(parameter) and parameter.device_mesh not in meshes:
            meshes.append(parameter.device_mesh)
    if len(meshes) > 1:
        raise RuntimeError(f"parameters lie on {len(meshes)} device meshes, one is supported")
    return meshes[0] if meshes else None


def is_dtensor(value: Any) -> bool:
    return DTensor is not None and isinstance(value, DTensor)


def unwrap(model: nn.Module) -> tuple[nn.Module, DistributedDataParallel | None]:
    if isinstance(model, DistributedDataParallel):
        return model.module, model
    return model, None


def dtensor_placements(tensor: Any, topology: Topology) -> str:
    """The placements of a DTensor as text of the trace."""
    if topology.device_mesh is None or tensor.device_mesh != topology.device_mesh:
        raise Unplaceable("a DTensor on another device mesh than the parameters")
    return spec_placements(tensor.placements, tensor.shape, topology)


def spec_placements(placements: Any, shape: torch.Size, topology: Topology) -> str:
    words = []
    cut = list(shape)
    for name, placement in zip(topology.tensor_dims, placements, strict=True):
        if placement.is_replicate():
            continue
        if placement.is_partial():
            if placement.reduce_op not in ("sum", "avg"):
                raise Unplaceable(f"{name}: a reduction by {placement.reduce_op} is pending")
            words.append(f"{name}:Partial({placement.reduce_op})")
            continue
        dim = placement.dim % len(shape)
        pieces = topology.size[name]
        sections = getattr(placement, "split_factor", 1)
        if cut[dim] % (pieces * sections):
            raise Unplaceable(f"{name}: {shape[dim]} does not divide evenly among the ranks")
        cut[dim] //= pieces
        kind = f"StridedShard({dim},{sections})" if sections > 1 else f"Shard({dim})"
        words.append(f"{name}:{kind}")
    return " ".join(words)


def local_tensor(tensor: Any) -> torch.Tensor:
    """What this rank holds of a DTensor, without entering it into the autograd graph.

    An embedding whose table is cut by rows leaves arbitrary values in the rows of foreign tokens
    until it is reduced: they count as zero.
    """
    local = tensor._local_tensor.detach()
    if hasattr(local, "wait"):  # the result of a collective that still runs
        local = local.wait()
    for dim, placement in enumerate(tensor.placements):
        mask = getattr(placement, "mask_buffer", None)
        # A mesh dimension of one rank masks nothing, and torch then keeps no mask.
        if mask is not None and tensor.device_mesh.size(dim) > 1:
            if mask.data is None:
                raise Unplaceable("masked rows of a partial embedding are not known any more")
            local = local.clone()
            mask.apply_mask(local)
    return local
