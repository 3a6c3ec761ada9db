"""What of a run this adapter does not follow: refused by name, with the way out."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Unsupported(Exception):
    """A run that this adapter cannot capture: what it uses, why that matters, the way out."""

    def __init__(self, what: str, reason: str, way_out: str) -> None:
        super().__init__(f"{what}: {reason}; {way_out}")
        self.what, self.reason, self.way_out = what, reason, way_out


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


WAY_OUT = "check the model under DistributedDataParallel or DTensor tensor parallelism"


def refuse_unknown_wrappers(model: nn.Module) -> None:
    """Wrappers that keep parameters elsewhere, or call the model in ways of their own."""
    for module in model.modules():
        for base in type(module).__mro__:
            if base.__name__ in _UNSUPPORTED:
                what = _UNSUPPORTED[base.__name__]
                raise Unsupported(what, "its parameters and calls are not understood", WAY_OUT)
            if base is DistributedDataParallel:
                raise Unsupported(
                    "DistributedDataParallel around a part of the model",
                    "how the rest of the model takes part in data parallelism is not known",
                    "wrap the whole model that is given to ttrace.attach",
                )
    if any(type(p).__name__ == "DTensor" for p in model.parameters()):
        return
    if any(hasattr(p, "ds_id") or hasattr(p, "_ds_tensor") for p in model.parameters()):
        raise Unsupported("DeepSpeed", "its parameters and calls are not understood", WAY_OUT)


def refuse_other_groups(ddps: Sequence[DistributedDataParallel]) -> None:
    groups = {tuple(dist.get_process_group_ranks(ddp.process_group)) for ddp in ddps}
    if len(groups) > 1:
        raise Unsupported(
            "models in DistributedDataParallel over different ranks",
            f"{len(groups)} groups of ranks are no single dimension of data parallelism",
            "give all wrappers the same process group, or compare each model in runs of its own",
        )


def refuse_ignored_parameters(ddp: DistributedDataParallel) -> None:
    ignored = getattr(ddp, "parameters_to_ignore", None) or ()
    names = [
        name for name, p in ddp.module.named_parameters() if p.requires_grad and name in ignored
    ]
    if names:
        raise Unsupported(
            "parameters that DistributedDataParallel is told to ignore",
            f"{len(names)} of them, the first {names[0]}: which ranks hold them and share their"
            " gradients, as experts may, cannot be seen",
            WAY_OUT,
        )


def refuse_localized_parameters(ddp: DistributedDataParallel) -> None:
    """Those of `_pre_dp_module_transform`, known by its hook: while the model runs, when it may be
    looked at first, they are not among the model's parameters."""
    hooks = ddp.module._forward_pre_hooks.values()
    if any(getattr(hook, "__name__", "") == "_reconstruct_dtensor" for hook in hooks):
        raise Unsupported(
            "DistributedDataParallel over DTensors",
            "the parameters are DTensors while the model runs, and local tensors for the optimizer",
            "check tensor parallelism and data parallelism apart, each without the other's ranks",
        )


def refuse_loaded_libraries(ranks: int, world: int) -> None:
    """Several processes, nothing of the model says what most of them do, and a library may."""
    for name, what in (
        ("deepspeed.runtime.engine", "DeepSpeed"),
        ("torch.distributed.pipelining.stage", "pipeline parallelism"),
        ("apex.parallel", "apex DistributedDataParallel"),
        ("horovod.torch", "Horovod"),
    ):
        if name in sys.modules:
            reason = f"it is loaded, and {ranks} of {world} ranks are accounted for without it"
            raise Unsupported(what, reason, WAY_OUT)


def beside(ranks: int, world: int) -> Unsupported:
    return Unsupported(
        "a parallelism beside DistributedDataParallel and DTensors",
        f"these account for {ranks} of {world} ranks",
        "how the other ranks take part cannot be seen; start as many ranks as these use",
    )
