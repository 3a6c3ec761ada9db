"""What an optimizer's step is about to compute with, noted for every parameter it updates.

Two runs group their parameters as they like; the check compares parameter by parameter. Read at the
entry of the step, when schedules have set what this step uses. Only values that can be read as
plain numbers, truth values or words are noted: what is missing is unknown, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ttrace.capture.note_lines import in_lines
from ttrace.capture.session import Session

# How the step is executed, not what it computes.
_EXECUTION = frozenset({"params", "foreach", "fused", "capturable", "differentiable"})
# Beside what an optimizer declares in `defaults`: schedulers and frameworks put these into groups.
_USED = ("lr", "weight_decay", "betas", "eps", "momentum", "dampening", "nesterov", "amsgrad")
_KNOWN = frozenset({"torch", "apex", "transformer_engine"})

# A value of the whole step: the loop changed gradients after they were recorded, and not in a way
# that is known. The check knows no such hyperparameter, and does not replay the step.
UNKNOWN_CHANGE = "the loop's own change of gradients"

# A value of the whole step: whether the norm was above `clip_grad`, so that clipping did something.
CLIPPED = "clipped"

# A value of the whole step: the loop changed gradients between backward and their being recorded,
# as a function of its own for clipping does. The step takes them as they were recorded.
CHANGED_EARLY = "gradients changed before they were recorded"

# A value of the whole step: a backward added to gradients after they were recorded, as where they
# are clipped after each micro-batch.
INCOMPLETE = "gradients recorded before the last backward"

# A value of the whole step: of how many backwards, or runs of them, the gradients were clipped.
CLIPPINGS = "the number of clippings in an iteration"

NameOf = Callable[[torch.Tensor], str | None]


def note_step(
    session: Session,
    iteration: int,
    optimizers: Iterable[tuple[torch.optim.Optimizer, Mapping[str, Any]]],
    name_of: NameOf,
) -> None:
    """One note for each group of each optimizer, with those of its parameters that have a name on
    this rank. The mappings are values of the whole step, such as `clip_grad`."""
    for index, (optimizer, of_step) in enumerate(optimizers):
        kind, of_kind = _kind(optimizer)
        declared = (*getattr(optimizer, "defaults", {}), *_USED)
        names = tuple(dict.fromkeys(name for name in declared if name not in _EXECUTION))
        for number, group in enumerate(optimizer.param_groups):
            values = {name: _plain(group[name]) for name in names if name in group}
            known = {name: v for name, v in {**of_kind, **values}.items() if v is not _UNKNOWN}
            parameters = list(dict.fromkeys(filter(None, map(name_of, group["params"]))))
            for part in in_lines(parameters):
                session.note(
                    "optimizer_group",
                    iteration=iteration,
                    optimizer=index,
                    group=number,
                    **kind,
                    values={**known, **of_step},
                    parameters=part,
                )


def note_no_gradient(session: Session, iteration: int, parameters: Sequence[str]) -> None:
    """Of those whose gradient is None, which is not zeros: a step leaves them alone, where weight
    decay and momentum would change them."""
    for names in in_lines(parameters):
        session.note("no_gradient", iteration=iteration, parameters=names)


_UNKNOWN = object()


def _plain(value: Any) -> Any:
    """What JSON can hold of a hyperparameter, or _UNKNOWN."""
    if isinstance(value, torch.Tensor):
        return _plain(value.item()) if value.numel() == 1 else _UNKNOWN
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return _UNKNOWN if any(isinstance(p, list) or p is _UNKNOWN for p in parts) else parts
    return _UNKNOWN


def _kind(optimizer: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """The algorithm, if its class is one that is known to be what its name says, and what the class
    itself decides. A fused kernel is another way to compute the same step, and AdamW is Adam whose
    weight decay is decoupled."""
    inner = getattr(optimizer, "optim", optimizer)  # torch's ZeroRedundancyOptimizer
    if type(inner).__module__.partition(".")[0] not in _KNOWN:
        return {}, {}
    kind = type(inner).__name__.removeprefix("Fused")
    if kind == "AdamW":
        return {"kind": "Adam"}, {"decoupled_weight_decay": True}
    mode = getattr(inner, "adam_w_mode", None)  # apex and TransformerEngine
    return {"kind": kind}, {} if mode is None else {"decoupled_weight_decay": bool(mode)}
