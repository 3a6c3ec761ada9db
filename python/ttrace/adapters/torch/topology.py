"""Which parallelism a plain torch model uses, as a mesh of the trace.

The dimensions are `dp`, the process group of DistributedDataParallel, and those of the device mesh
of the model's DTensor parameters, under their own names ("tp" where they have none). Where there is
neither, all ranks are presumed to be data-parallel by what the loop itself does (own_reduction.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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


class Unsupported(Exception):
    """A run that this adapter cannot capture: what it uses, why that matters, the way out."""

    def __init__(self, what: str, reason: str, way_out: str) -> None:
        super().__init__(f"{what}: {reason}; {way_out}")
        self.what, self.reason, self.way_out = what, reason, way_out


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
    by_hand: bool = False  # nothing says that ranks are data-parallel: it is presumed

    @property
    def wrapped(self) -> bool:
        """Whether the model is one of DistributedDataParallel's."""
        return self.dp_name is not None and not self.by_hand

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
    def of(model: nn.Module, ddps: Sequence[DistributedDataParallel]) -> Topology:
        """`ddps`: wrappers around the model, or around those of its children that the loop calls.
        Raises Unsupported for a parallelism that this adapter does not know."""
        initialized = dist.is_available() and dist.is_initialized()
        world = dist.get_world_size() if initialized else 1
        size: dict[str, int] = {}
        coordinate: dict[str, int] = {}
        refuse_unknown_wrappers(model)
        _refuse_other_groups(ddps)
        for ddp in ddps:
            _refuse_ignored_parameters(ddp)
            _refuse_localized_parameters(ddp)
            group = ddp.process_group
            size["dp"] = dist.get_world_size(group)
            coordinate["dp"] = dist.get_rank(group)
        mesh = _device_mesh(model)
        names: tuple[str, ...] = ()
        if mesh is not None:
            names = tuple(mesh.mesh_dim_names or _default_names(mesh.ndim))
            if size.keys() & set(names):
                raise Unsupported(
                    "a device mesh with a dimension 'dp' inside DistributedDataParallel",
                    "the name is that of DistributedDataParallel's own group",
                    "give the device mesh's dimension another name",
                )
            size |= {name: mesh.size(i) for i, name in enumerate(names)}
            coordinate |= dict(zip(names, mesh.get_coordinate(), strict=True))
        ranks = 1
        for count in size.values():
            ranks *= count
        rank = dist.get_rank() if initialized else 0
        by_hand = False
        if ranks != world:
            _refuse_loaded_libraries(ranks, world)
            if size:
                raise _beside(ranks, world)
            by_hand = True
        if not size:  # a mesh has at least one dimension
            size, coordinate = {"dp": world}, {"dp": rank}
        dp_name = "dp" if ddps or by_hand else None
        return Topology(size, coordinate, dp_name, mesh, names, rank, world, by_hand)


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


def _device_mesh(model: nn.Module) -> Any:
    meshes = []
    for parameter in model.parameters():
        if is_dtensor(parameter) and parameter.device_mesh not in meshes:
            meshes.append(parameter.device_mesh)
    if len(meshes) > 1:
        raise Unsupported(
            f"parameters on {len(meshes)} device meshes",
            "only one can be followed",
            "build all parallel modules on one device mesh of several dimensions",
        )
    return meshes[0] if meshes else None


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


def without_rows(placements: str, batch_dim: int) -> str:
    """Without cuts through the batch: these are said by the rows of a record."""
    if batch_dim < 0:
        return placements
    cut = f":Shard({batch_dim})"
    return " ".join(word for word in placements.split() if not word.endswith(cut))


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
