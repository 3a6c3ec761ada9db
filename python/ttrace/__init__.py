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

    from ttrace.result import Result

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


def compare(
    reference: Callable[..., Any],
    candidate: Callable[..., Any],
    *,
    ranks: tuple[int, int] = (1, 2),
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    iterations: int | str = 2,
    backend: str | None = "auto",
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> Result:
    """Compares two functions that train, as `ttrace diff` compares two commands.

    Each builds its model and optimizer, calls `ttrace.attach(model, optimizer)` if its framework
    needs that, and takes at least `iterations` steps ("FIRST:END": those are compared); what it
    returns is ignored. They are called
    in processes of their own, several times (for noise, isolation, ...), the reference in
    `ranks[0]` and the candidate in `ranks[1]` of them, with `args` and `kwargs`, which are pickled.
    Those processes are kept, so that a second comparison does not import torch again. Functions at
    the top of a module are found there by their name; others need cloudpickle.

    `backend`: of the process group that each function finds, "gloo", "nccl"; "auto": the devices'
    if there is one for each rank; None: it makes its own, by the environment that torchrun gives.
    `output`: a folder for the report and traces, whose former result is replaced; None: nothing is
    kept. `options`: further words for `ttrace diff`, such as "--graft=none".

    Never raises for what a function raises: the result is then inconclusive, and says so. Raises
    TypeError for a function or arguments that cannot be sent to other processes. May be called from
    several threads.
    """
    from ttrace.comparison import compare as compare_functions

    return compare_functions(
        reference,
        candidate,
        ranks=ranks,
        args=args,
        kwargs=kwargs,
        iterations=iterations,
        backend=backend,
        output=output,
        options=options,
    )


def check(
    reference: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> Result:
    """Compares two trace folders, as `ttrace check` does. `output`: a folder for the report;
    `options`: further words for the command, such as "--bitwise". A trace that cannot be read makes
    the result inconclusive."""
    from ttrace.comparison import check as check_traces

    return check_traces(reference, candidate, output=output, options=options)
