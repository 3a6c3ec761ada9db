"""Attaching capture to a plain torch model: see ttrace.attach."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import torch
from torch import nn

from ttrace.adapters.torch.loop import LoopCapture
from ttrace.adapters.torch.loss_scale import plain
from ttrace.capture.settings import Settings

_attached: LoopCapture | None = None


def attach(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    out: str | None = None,
) -> None:
    """See ttrace.attach."""
    global _attached
    try:
        settings = Settings.from_environment()
        if settings is None and out is not None:
            settings = Settings(out=os.path.abspath(out))
            _create_folder(settings.out)
        if settings is None:
            return
        optimizers = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
        if _attached is not None and _attached.is_of(model):
            return  # loops of accelerate and Lightning are attached by themselves
        if _attached is not None and not _attached.over:
            _attached.refuse_another(type(model).__name__)
            raise RuntimeError("a second model was attached; only the first is captured")
        _attached = LoopCapture(settings, model, [plain(one) for one in optimizers])
    except Exception as error:
        sys.stderr.write(f"ttrace: not captured: {type(error).__name__}: {error}\n")


def attached() -> bool:
    """Whether this process is captured, or was."""
    return _attached is not None


def capture_of(model: nn.Module) -> LoopCapture | None:
    """What captures this model, while it does."""
    return _attached if _attached is not None and _attached.is_of(model) else None


def _create_folder(folder: str) -> None:
    """What the launcher does before a recorded run; ranks may race for it."""
    os.makedirs(folder, exist_ok=True)
    try:
        with open(os.path.join(folder, "manifest.json"), "x", encoding="utf-8") as file:
            manifest = {"format": "ttrace", "version": 1, "command": sys.argv}
            file.write(json.dumps(manifest) + "\n")
    except FileExistsError:
        rank = int(os.environ.get("RANK", "0"))
        if os.path.exists(os.path.join(folder, f"rank-{rank:05}.r0")):
            raise RuntimeError(f"{folder!r} has a trace already") from None
