"""Which parallelism a plain torch model uses, as a mesh of the trace.

Its dimensions are those of the device meshes of the model's DTensor parameters, under their own
names ("tp" where they have none), those of a mesh that the loop has given to `attach`, and `dp`,
the process group of DistributedDataParallel. Ranks that none of these tells apart are presumed to
be data-parallel by what the loop itself does (own_reduction.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.declared import Declared
from ttrace.adapters.torch.dtensors import Unplaceable, is_dtensor
from ttrace.adapters.torch.mesh_layout import Extent, Grid, NoGrid, extent_of, extents_of
from ttrace.adapters.torch.refusals import (
    WAY_OUT,
    Unsupported,
    beside,
    refuse_ignored_parameters,
    refuse_loaded_libraries,
    refuse_localized_parameters,
    refuse_other_groups,
    refuse_unknown_wrappers,
)


@dataclass(frozen=True)
class Topology:
    """The grid of all ranks, this one's place in it, and what its dimensions do."""

    size: dict[str, int] = field(default_factory=dict)
    coordinate: dict[str, int] = field(default_factory=dict)
    batch: tuple[str, ...] = ()  # dimensions along which ranks have rows of their own
    reduction: tuple[str, ...] = ()  # over which gradients are summed; those of `batch`, and others
    tensor_dims: frozenset[str] = frozenset()  # of the device meshes that parameters lie on
    grid: Grid = field(default_factory=lambda: Grid((), ()))
    declared: Declared | None = None  # where plain tensors lie, as the loop has said
    rank: int = 0
    world_size: int = 1
    wrapped: bool = False  # the model is one of DistributedDataParallel's
    by_hand: bool = False  # nothing says that ranks are data-parallel: it is presumed
    _known: dict[Any, list[tuple[str, ...]] | None] = field(default_factory=dict, compare=False)

    @property
    def cuts_tensors(self) -> bool:
        """Whether parts of rows may lie on other ranks."""
        return bool(self.tensor_dims) or self.declared is not None

    @property
    def batch_parts(self) -> int:
        """Into how many parts the global batch is cut among ranks."""
        return prod(self.size[name] for name in self.batch)

    @property
    def batch_part(self) -> int:
        """Which of them is this rank's."""
        part = 0
        for name in self.batch:
            part = part * self.size[name] + self.coordinate[name]
        return part

    @property
    def reduction_parts(self) -> int:
        """How many terms of a gradient there are among ranks."""
        return prod(self.size[name] for name in self.reduction)

    def summed(self, but: str = "") -> str:
        """That a sum over all ranks whose gradients are summed is pending; nothing if there are
        none. `but`: not over dimensions that are named in these placements."""
        others = {word.partition(":")[0] for word in but.split()}
        return " ".join(f"{name}:Partial(sum)" for name in self.reduction if name not in others)

    def ranks_along(self, names: Sequence[str]) -> list[int]:
        """This rank and those that differ from it in these dimensions alone, in ascending order."""
        found = [self.rank]
        for name in names:
            stride = self.grid.extents[self.grid.names.index(name)].stride
            first = -self.coordinate[name]
            steps = range(first, first + self.size[name])
            found = [rank + step * stride for rank in found for step in steps]
        return sorted(found)

    def dims_of(self, mesh: Any) -> list[tuple[str, ...]]:
        """What the dimensions of a DeviceMesh are in the grid, each one or several, by which ranks
        they join: meshes that are made apart may be the same. Raises Unplaceable."""
        if mesh not in self._known:
            extents = extents_of(mesh)
            inside = None if extents is None else [self.grid.inside(e) for e in extents]
            self._known[mesh] = None if inside is None or None in inside else inside  # type: ignore[assignment]
        dims = self._known[mesh]
        if dims is None:
            raise Unplaceable("a DTensor on a device mesh of other groups of ranks")
        return dims

    @staticmethod
    def of(
        model: nn.Module,
        ddps: Sequence[DistributedDataParallel],
        declared: Declared | None = None,
    ) -> Topology:
        """`ddps`: wrappers around the model, or around those of its children that the loop calls.
        Raises Unsupported for a parallelism that this adapter does not know."""
        initialized = dist.is_available() and dist.is_initialized()
        world = dist.get_world_size() if initialized else 1
        rank = dist.get_rank() if initialized else 0
        refuse_unknown_wrappers(model)
        named = _named_extents(_device_meshes(model))
        of_meshes = [extent for _, extent in named]
        if declared is not None:
            named += _named_extents([declared.mesh])
        ddp_extent = None
        refuse_other_groups(ddps)
        for ddp in ddps:
            refuse_ignored_parameters(ddp)
            refuse_localized_parameters(ddp)
        if ddps:
            ddp_extent = _extent_of_group(ddps[0].process_group)
            taken = any(name == "dp" and extent != ddp_extent for name, extent in named)
            named.append(("ddp" if taken else "dp", ddp_extent))
        taken = any(name == "dp" for name, _ in named)
        try:
            grid = Grid.of(world, named, "rest" if taken else "dp")
        except NoGrid as reason:
            raise Unsupported(
                "groups of ranks that are no grid",
                str(reason),
                "let one device mesh of several dimensions say how all ranks are divided",
            ) from None
        tensor_dims = _inside(grid, of_meshes)
        if ddp_extent is not None:
            reduction = _inside(grid, [ddp_extent])
        else:
            reduction = frozenset(grid.names) - tensor_dims
        others = set(grid.names) - reduction - _inside(grid, [extent for _, extent in named])
        unsaid = others if ddps else reduction  # nothing of the model says what these ranks do
        if unsaid:
            known = world // prod(grid.sizes()[name] for name in unsaid)
            refuse_loaded_libraries(known, world)
            if ddps:
                raise beside(known, world)
        in_order = tuple(name for name in grid.names if name in reduction)
        cut = frozenset() if declared is None else declared.dims()
        return Topology(
            # A mesh has at least one dimension.
            size=grid.sizes() or {"dp": 1},
            coordinate=grid.coordinate(rank) or {"dp": 0},
            batch=tuple(name for name in in_order if name not in cut),
            reduction=in_order,
            tensor_dims=tensor_dims,
            grid=grid,
            declared=declared,
            rank=rank,
            world_size=world,
            wrapped=bool(ddps),
            by_hand=not ddps and bool(reduction),
        )


def _inside(grid: Grid, extents: Iterable[Extent]) -> frozenset[str]:
    return frozenset(name for extent in extents for name in grid.inside(extent) or ())


def _named_extents(meshes: Iterable[Any]) -> list[tuple[str, Extent]]:
    """Of all dimensions of these. Raises Unsupported."""
    found: list[tuple[str, Extent]] = []
    for mesh in meshes:
        extents = extents_of(mesh)
        if extents is None:
            raise Unsupported(
                "a device mesh that this rank is not in, or of unequally distant ranks",
                f"its ranks are {mesh.mesh.tolist()}",
                "build all parallel modules on meshes that init_device_mesh makes",
            )
        names = mesh.mesh_dim_names or _default_names(mesh.ndim)
        found += zip(names, extents, strict=True)
    return found


def _extent_of_group(group: Any) -> Extent:
    ranks = dist.get_process_group_ranks(group)
    extent = extent_of(ranks)
    if extent is None:
        raise Unsupported(
            "DistributedDataParallel over unequally distant ranks",
            f"its process group has ranks {', '.join(map(str, ranks))}",
            WAY_OUT,
        )
    return extent


def _default_names(count: int) -> tuple[str, ...]:
    return ("tp",) if count == 1 else tuple(f"tp{i}" for i in range(count))


def _device_meshes(model: nn.Module) -> list[Any]:
    meshes: list[Any] = []
    for parameter in model.parameters():
        if is_dtensor(parameter) and parameter.device_mesh not in meshes:
            meshes.append(parameter.device_mesh)
    return meshes
