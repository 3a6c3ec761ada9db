"""Finds, places and explains silent numerical bugs of distributed training runs.

Importing this package does not import torch: the command line and the import hook start fast, and
a training script decides for itself when torch is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttrace._native import Error, IoError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from ttrace.comparison import check, compare

__all__ = [
    "Error",
    "IoError",
    "NotFoundError",
    "UnsupportedError",
    "attach",
    "check",
    "compare",
]


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    out: str | None = None,
) -> Any:
    """Captures a plain torch training loop; to be called once, after the optimizer is built. Where
    a loop has several optimizers, give all that step in each iteration.

    Does nothing unless the run was started by `ttrace record` or `ttrace diff`, or `out` names a
    trace folder. Megatron-core, and loops on accelerate (transformers' Trainer), need no call.
    """
    from ttrace.adapters.torch.attach import attach as attach_to

    return attach_to(model, optimizer, out=out)


def __getattr__(name: str) -> Any:
    """What comparisons need is imported by who makes one, not by every rank."""
    if name not in ("check", "compare"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ttrace import comparison

    return getattr(comparison, name)
