"""What is noted of a plain torch model and of what its loop does beside it."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.compiled import anything_compiled
from ttrace.adapters.torch.hooks import LoopHooks
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.private_names import TORCH
from ttrace.adapters.torch.token_sums import token_sums
from ttrace.adapters.torch.wrappers import canonical_name, wrappers
from ttrace.capture import process_messages, source_lines
from ttrace.capture.low_precision import quantised
from ttrace.capture.modules_beside import beside
from ttrace.capture.private_names import looked_up, missing


def facts(model: AttachedModel) -> dict[str, Any]:
    """For meta.json."""
    return {
        "framework": "torch",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "model": model.kind,
        "ddp": bool(model.ddps),
        "private_names": looked_up(TORCH),
        **({"loss_fn": model.loss_name} if model.loss_name else {}),
    }


def note_start(session: LoopSession, model: AttachedModel) -> None:
    # Where a loop divides, before the reduction or after it, is its own affair.
    session.note("loss_unit", known=False)
    for text in missing(TORCH):
        session.note("notice", text=text)
    named = {canonical_name(name): module for name, module in model.root.named_modules()}
    classes = {name: type(module).__name__ for name, module in named.items()}
    roots = {root.name: classes[root.name] for root in model.roots if root.name}
    session.note("modules", classes=classes, **({"roots": roots} if roots else {}))
    source_lines.note_modules(session, named.items())
    session.note("token_sums", **token_sums(model.root))
    _note_quantised(session, model)


def _note_quantised(session: LoopSession, model: AttachedModel) -> None:
    modules = ((canonical_name(name), module) for name, module in model.root.named_modules())
    for found in quantised(modules):
        session.unsupported(
            found.what,
            "its values have a few bits and scales of their own, each rank's from its own rows:"
            " two honest runs round them otherwise than the recorded dtypes tell",
            "compare both runs with these modules in bf16, or as they are before conversion",
        )


def note_ddp(session: LoopSession) -> None:
    reason = "DistributedDataParallel reduces gradients outside of Python"
    session.note("collectives_not_seen", phase="reduction", reason=reason)


def note_batch_norm(session: LoopSession, model: AttachedModel, rows: int) -> None:
    """Its statistics are those of the rows that it sees: another function of the batch where these
    are fewer."""
    for fqn, module in model.batch_norms.items():
        if not module.training and session.once(f"evaluation mode of {fqn}"):
            session.note("attribute", fqn=fqn, name="training", value=False, expected=True)
    # A class of its own may average over whatever it likes; a frozen one averages over nothing.
    kinds = {
        type(module).__name__
        for module in model.batch_norms.values()
        if type(module).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward)
        and (module.training or module.running_mean is None)
    }
    if not kinds or not session.once("batch norm"):
        return
    if kinds == {"SyncBatchNorm"}:
        rows *= session.topology.batch_parts
    session.note(
        "computation",
        name="rows in the statistics of batch normalisation",
        value=rows,
        option="torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), and micro-batches of the"
        " same number of rows over all ranks",
    )


def note_not_called(session: LoopSession, hooks: LoopHooks) -> None:
    """A module that is part of the model and was not called may be in compiled code, which runs no
    hooks."""
    if not anything_compiled():
        return
    for fqn in hooks.not_called():
        if session.once("compiled", fqn):
            reason = "not called from Python: unused, or inside of compiled code"
            session.note("compiled", fqn=fqn, reason=reason)


def note_modules_beside(session: LoopSession, model: AttachedModel) -> None:
    """Once, when the loop has made what it makes: averages, teachers."""
    if not session.once("modules beside"):
        return
    around = [inner for module in (*model.outside, model.root) for inner in module.modules()]
    found = beside(around, model.root)
    classes = sorted({type(wrappers(module)[-1]).__name__ for module in found})
    if found:
        session.note("modules_beside", count=len(found), classes=classes)


def note_called_without_gradients(session: LoopSession) -> None:
    """In this iteration, or since the one before: the loop evaluates, or generates."""
    if session.now.called_without_gradients:
        session.note("called_without_gradients", iteration=session.iteration)


def refuse_evaluation(session: LoopSession) -> None:
    """A step that no forward in training mode came before, but others with gradients."""
    what, way_out = "training in evaluation mode", "call model.train() before the loop"
    reason = "the optimizer steps after forwards of a model that is in evaluation mode (eval())"
    if session.started:
        session.unsupported(what, reason, way_out)
    else:
        text = f"{what} is not supported: {reason}; {way_out}"
        process_messages.leave(session.settings.out, "refused", text=text)
