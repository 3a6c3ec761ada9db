"""Finds, places and explains silent numerical bugs of distributed training runs.

Importing this package does not import torch: the command line and the import hook start fast, and
a training script decides for itself when torch is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttrace._native import Error, IoError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement

    from ttrace.adapters.torch.attach import Attached
    from ttrace.comparison import check, compare, record

__all__ = [
    "Error",
    "IoError",
    "NotFoundError",
    "UnsupportedError",
    "attach",
    "check",
    "compare",
    "record",
]


def attach(
    model: torch.nn.Module | Sequence[torch.nn.Module] | Mapping[str, torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    out: str | os.PathLike[str] | None = None,
    loss_fn: Callable[..., Any] | None = None,
    step: Callable[..., Any] | None = None,
    mesh: DeviceMesh | None = None,
    placements: Mapping[str, Mapping[str, Placement]] | None = None,
) -> Attached:
    """Captures a plain torch training loop; to be called once, after the optimizer is built. Where
    a loop has several optimizers, give all that step in each iteration; where it calls several
    models apart from each other, give all, best by names, which begin those of their modules.

    Does nothing unless the run was started by `ttrace record` or `ttrace diff`, the call lies in
    `ttrace.compare` or `ttrace.record`, or `out` names a trace folder. Megatron-core, Lightning and
    loops on accelerate (transformers' Trainer), need no call.

    `loss_fn`: what computes the loss, which the trace then names. `step`: a callable that is the
    forward and backward of one iteration; kept with the capture.

    `mesh`, with names, and `placements`: where plain tensors lie in a loop that cuts them by hand,
    which nothing else says. For a module's name or a pattern of names, or "module:argument", what
    each dimension of the mesh does to the tensors that the module takes and gives; the first that
    fits counts. A dimension that cuts tensors cuts no batch; over all that are none of DTensors'
    gradients are summed. Sequences in two parts, the rows over the rest:

        attach(model, optimizer, mesh=mesh, placements={"*": {"cp": Shard(1)}})

    Never raises: what cannot be captured is said in one line on stderr. The hold that it returns
    can be closed before the last iteration; it need not be.
    """
    from ttrace.adapters.torch.attach import attach as attach_to

    more = {"loss_fn": loss_fn, "step": step, "mesh": mesh, "placements": placements}
    return attach_to(model, optimizer, out=out, **more)


def __getattr__(name: str) -> Any:
    """What comparisons need is imported by who makes one, not by every rank."""
    if name not in ("check", "compare", "record"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ttrace import comparison

    return getattr(comparison, name)
