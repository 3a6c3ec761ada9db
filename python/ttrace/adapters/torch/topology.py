"""Which parallelism a plain torch model uses, as a mesh of the trace.

Its dimensions are those of the device meshes of the model's DTensor parameters, under their own
names ("tp" where they have none), those of a mesh that the loop has given to `attach`, and `dp`,
the process group of DistributedDataParallel. Ranks that none of these tells apart are presumed to
be data-parallel by what the loop itself does (own_reduction.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.declared import Declared
from ttrace.adapters.torch.mesh_layout import Extent, Grid, NoGrid, extent_of, extents_of
from ttrace.capture.tensor_bytes import plain

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # a torch without distributed, or too old for DTensor
    DTensor = None  # type: ignore[assignment, misc]


class Unplaceable(Exception):
    """Nothing certain can be said about where a tensor lies."""


class Unsupported(Exception):
    """A run that this adapter cannot capture: what it uses, why that matters, the way out."""

    def __init__(self, what: str, reason: str, way_out: str) -> None:
        super().__init__(f"{what}: {reason}; {way_out}")
        self.what, self.reason, self.way_out = what, reason, way_out


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
        known = len(named)
        ddp_extent = None
        _refuse_other_groups(ddps)
        for ddp in ddps:
            _refuse_ignored_parameters(ddp)
            _refuse_localized_parameters(ddp)
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
        beside = (
            set(grid.names)
            - tensor_dims
            - reduction
            - _inside(grid, [extent for _, extent in named[:known]])
        )
        if beside or (reduction and not ddps):
            _refuse_loaded_libraries(world // prod(grid.sizes()[n] for n in reduction), world)
        if beside:
            raise _beside(world // prod(grid.sizes()[name] for name in beside), world)
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
            _WAY_OUT,
        )
    return extent


# By the names of their classes, so that nothing has to be imported.
_UNSUPPORTED = {
    "FSDPModule": "FSDP2 (fully_shard)",
    "FullyShardedDataParallel": "FSDP (FullyShardedDataParallel)",
    "DeepSpeedEngine": "DeepSpeed",
    "PipelineModule": "DeepSpeed's pipeline parallelism",
    "PipelineStage": "pipeline parallelism (torch.distributed.pipelining)",
    "_PipelineStageBase": "pipeline parallelism (torch.distributed.pipelining)",
    "DataParallel": "torch.nn.DataParallel",
}
_WAY_OUT = "check the model under DistributedDataParallel or DTensor tensor parallelism"


def refuse_unknown_wrappers(model: nn.Module) -> None:
    """Wrappers that keep parameters elsewhere, or call the model in ways of their own."""
    for module in model.modules():
        for base in type(module).__mro__:
            if base.__name__ in _UNSUPPORTED:
                what = _UNSUPPORTED[base.__name__]
                raise Unsupported(what, "its parameters and calls are not understood", _WAY_OUT)
            if base is DistributedDataParallel:
                raise Unsupported(
                    "DistributedDataParallel around a part of the model",
                    "how the rest of the model takes part in data parallelism is not known",
                    "wrap the whole model that is given to ttrace.attach",
                )
    if any(type(p).__name__ == "DTensor" for p in model.parameters()):
        return
    if any(hasattr(p, "ds_id") or hasattr(p, "_ds_tensor") for p in model.parameters()):
        raise Unsupported("DeepSpeed", "its parameters and calls are not understood", _WAY_OUT)


def _refuse_other_groups(ddps: Sequence[DistributedDataParallel]) -> None:
    groups = {tuple(dist.get_process_group_ranks(ddp.process_group)) for ddp in ddps}
    if len(groups) > 1:
        raise Unsupported(
            "models in DistributedDataParallel over different ranks",
            f"{len(groups)} groups of ranks are no single dimension of data parallelism",
            "give all wrappers the same process group, or compare each model in runs of its own",
        )


def _refuse_ignored_parameters(ddp: DistributedDataParallel) -> None:
    ignored = getattr(ddp, "parameters_to_ignore", None) or ()
    names = [
        name for name, p in ddp.module.named_parameters() if p.requires_grad and name in ignored
    ]
    if names:
        raise Unsupported(
            "parameters that DistributedDataParallel is told to ignore",
            f"{len(names)} of them, the first {names[0]}: which ranks hold them and share their"
            " gradients, as experts may, cannot be seen",
            _WAY_OUT,
        )


def _refuse_localized_parameters(ddp: DistributedDataParallel) -> None:
    """Those of `_pre_dp_module_transform`, known by its hook: while the model runs, when it may be
    looked at first, they are not among the model's parameters."""
    hooks = ddp.module._forward_pre_hooks.values()
    if any(getattr(hook, "__name__", "") == "_reconstruct_dtensor" for hook in hooks):
        raise Unsupported(
            "DistributedDataParallel over DTensors",
            "the parameters are DTensors while the model runs, and local tensors for the optimizer",
            "check tensor parallelism and data parallelism apart, each without the other's ranks",
        )


def _refuse_loaded_libraries(ranks: int, world: int) -> None:
    """Several processes, nothing of the model says what most of them do, and a library may."""
    for name, what in (
        ("deepspeed.runtime.engine", "DeepSpeed"),
        ("torch.distributed.pipelining.stage", "pipeline parallelism"),
        ("apex.parallel", "apex DistributedDataParallel"),
        ("horovod.torch", "Horovod"),
    ):
        if name in sys.modules:
            reason = f"it is loaded, and {ranks} of {world} ranks are accounted for without it"
            raise Unsupported(what, reason, _WAY_OUT)


def _beside(ranks: int, world: int) -> Unsupported:
    return Unsupported(
        "a parallelism beside DistributedDataParallel and DTensors",
        f"these account for {ranks} of {world} ranks",
        "how the other ranks take part cannot be seen; start as many ranks as these use",
    )


def _default_names(count: int) -> tuple[str, ...]:
    return ("tp",) if count == 1 else tuple(f"tp{i}" for i in range(count))


def _device_meshes(model: nn.Module) -> list[Any]:
    meshes: list[Any] = []
    for parameter in model.parameters():
        if is_dtensor(parameter) and parameter.device_mesh not in meshes:
            meshes.append(parameter.device_mesh)
    return meshes


def is_dtensor(value: Any) -> bool:
    return DTensor is not None and isinstance(value, DTensor)


# Where torch's own wrappers keep the module that they are put around: torch.compile, and those of
# torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
_ACTIVATION_WRAPPED = "_checkpoint_wrapped_module"
_WRAPPED = ("_orig_mod", _ACTIVATION_WRAPPED)


def canonical_name(name: str) -> str:
    """Without what torch puts around a module."""
    return ".".join(word for word in name.split(".") if word not in _WRAPPED)


def is_activation_wrapper(module: nn.Module) -> bool:
    """What checkpoint_wrapper or offload_wrapper has made: it hands on what the module inside it
    computes, and has its name."""
    return _ACTIVATION_WRAPPED in module._modules


def inside(module: nn.Module) -> nn.Module:
    """The module itself, or what activation wrappers around it hand their arguments to."""
    while is_activation_wrapper(module):
        module = module._modules[_ACTIVATION_WRAPPED]  # type: ignore[assignment]
    return module


def wrappers(model: nn.Module) -> list[nn.Module]:
    """`model` and what is inside it, down to the user's own module, which is the last."""
    chain = [model]
    while True:
        inside = chain[-1]
        if isinstance(inside, DistributedDataParallel):
            chain.append(inside.module)
        elif is_compiled_wrapper(inside):
            chain.append(inside._orig_mod)  # type: ignore[arg-type]
        else:
            return chain


def is_compiled_wrapper(module: Any) -> bool:
    """What torch.compile(module) returns."""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


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
