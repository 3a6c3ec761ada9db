"""What releases of megatron-core, from 0.12 on, have in another form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from megatron.core import package_info, parallel_state


def has(function: Callable[..., Any], argument: str) -> bool:
    return argument in inspect.signature(function).parameters


def known_to(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Those of the arguments that this release's function has. Only for what it finds out by itself
    where it is not told: what a user asked for is never left out."""
    return {name: value for name, value in arguments.items() if has(function, name)}


def begin_chunk(vp_stage: int | None) -> None:
    """Before 0.13 a chunk is told which one it is by a global number, and by no argument."""
    if vp_stage is not None and not has(parallel_state.is_pipeline_first_stage, "vp_stage"):
        parallel_state.set_virtual_pipeline_model_parallel_rank(vp_stage)


def is_first_stage(vp_stage: int | None) -> bool:
    return _is_stage(parallel_state.is_pipeline_first_stage, vp_stage)


def is_last_stage(vp_stage: int | None) -> bool:
    return _is_stage(parallel_state.is_pipeline_last_stage, vp_stage)


def _is_stage(asked: Callable[..., bool], vp_stage: int | None) -> bool:
    return asked(ignore_virtual=vp_stage is None, **known_to(asked, vp_stage=vp_stage))


def counted_with_others(loss: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of all context-parallel ranks that share a sequence, as the schedule before 0.13 expects
    them: it divides by these tokens, and multiplies by the number of ranks."""
    group = parallel_state.get_context_parallel_group()
    if (package_info.MAJOR, package_info.MINOR) >= (0, 13) or group.size() == 1:
        return loss, tokens
    of_all = torch.stack([loss.detach(), tokens.to(loss.dtype)])
    torch.distributed.all_reduce(of_all, group=group)
    # The value is that of all, the gradient that of the own part.
    return loss + (of_all[0] - loss.detach()), of_all[1].to(tokens.dtype)
