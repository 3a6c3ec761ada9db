"""A communication hook of DistributedDataParallel: a function that reduces gradients in its stead.

It may be registered at any time before the first backward, also before `attach`. So its name is
read when gradients are complete, from what DistributedDataParallel says of itself. What it sends is
among the collectives of the backward, but for those that torch makes outside of Python.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.loop_session import LoopSession

# Those that torch has built in: what they send. None: the gradients as they are.
_BUILT_IN = {"FP16_COMPRESS": "float16", "ALLREDUCE": None}


def note_comm_hook(session: LoopSession, ddp: DistributedDataParallel) -> None:
    """Once a run. Nothing where it reduces gradients itself."""
    name = hook_name(ddp)
    if not name:
        return
    built_in = name.rpartition(".")[2]
    if built_in in _BUILT_IN and _BUILT_IN[built_in] is None:
        return
    session.note(
        "comm_hook",
        name=name,
        iteration=session.iteration,
        sends=_BUILT_IN.get(built_in) or "",
        elements=sum(p.numel() for p in ddp.parameters() if p.requires_grad),
        ranks=dist.get_process_group_ranks(ddp.process_group),
    )


def hook_name(ddp: Any) -> str:
    """Empty: there is none, or this version of torch does not say."""
    facts = getattr(ddp, "_get_ddp_logging_data", None)
    return "" if facts is None else str(facts().get("comm_hook", ""))
