#!/usr/bin/env python3
"""What a record of a small tensor costs the thread that trains, and where: in the hooks, in Python
behind them, in the native call. CPU time of that thread alone, best of many steps.

    .venv/bin/python bench/small_records.py [--modules 200] [--rounds 30]

The losses of every way must be those of a model without hooks before any time is believed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.placed import Batch, ModuleRule, Moment, TensorRule
from ttrace.capture.session import Session
from ttrace.capture.settings import Settings

# Laid out as Megatron's activations are: [sequence, batch, hidden].
RULE = TensorRule(placements="tp:Replicate", batch_dim=1)
SHAPE = (4, 2, 8)


def build(modules: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(SHAPE[-1], SHAPE[-1]) for _ in range(modules)))


class Capture:
    """Hooks on every module; `records` counts what they record."""

    def __init__(self, model: nn.Module, folder: str) -> None:
        (Path(folder) / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
        self.session = Session(Settings(out=folder, iterations=range(1_000_000)))
        self.session.start(0, 1, [("tp", 1)], [0], {})
        self.session.cost.take()  # a few counters, until the first rerun
        self.hooks = ModuleHooks(self.session)
        for name, module in model.named_children():
            self.hooks.install(module, name, ModuleRule({"input": RULE}, {"0": RULE}))
        self.batch = Batch(SHAPE[1], SHAPE[1], 1, (1, 1))

    def begin(self, step: int) -> None:
        self.hooks.flush()
        self.session.now.begin_forward(Moment(step, "real", 0, self.batch))


def nothing(*_arguments: Any, **_named: Any) -> None:
    pass


def only_hooks(capture: Capture) -> None:
    capture.session.record_at = nothing  # type: ignore[method-assign]


def only_python(capture: Capture) -> None:
    writer = capture.session._writer._native

    class Deaf:
        append = staticmethod(nothing)

        def __getattr__(self, name: str) -> Any:
            return getattr(writer, name)

    capture.session._writer._native = Deaf()


def measure(
    modules: int, rounds: int, change: Callable[[Capture], None] | None, hooked: bool = True
) -> tuple[float, list[float], int]:
    """Seconds of a step, its losses, and how many records it makes."""
    model = build(modules)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(2))
    losses, best, count = [], float("inf"), 0
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        capture = Capture(model, folder) if hooked else None
        if capture is not None and change is not None:
            change(capture)
        for step in range(rounds):
            if capture is not None:
                capture.begin(step)
            start = time.thread_time()
            loss = model(x.requires_grad_()).square().mean()
            loss.backward()
            best = min(best, time.thread_time() - start)
            losses.append(loss.item())
            model.zero_grad()
            if capture is not None:
                capture.session.seal(step, "real")
        if capture is not None:
            capture.session.finish()
            lines = (Path(folder) / "rank-00000.r0" / "index.jsonl").read_text()
            count = lines.count('"type":"record"') // rounds
    return best, losses, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size = (options.modules, options.rounds)
    plain, losses, _ = measure(*size, None, hooked=False)
    rows = []
    for name, change in (
        ("hooks", only_hooks),
        ("hooks and Python", only_python),
        ("all", None),
    ):
        seconds, got, count = measure(*size, change)
        assert got == losses, f"{name} changed the run"
        rows.append((name, seconds))
    assert count >= 4 * options.modules - 1, count
    before = plain
    print(f"{options.modules} modules, {count} records of {torch.Size(SHAPE).numel() * 4} bytes")
    print(f"plain step {plain / options.modules * 1e6:.1f} us a module")
    for name, seconds in rows:
        print(
            f"{name}: {(seconds - plain) / count * 1e6:.2f} us a record,"
            f" {(seconds - before) / count * 1e6:.2f} more"
        )
        before = seconds


if __name__ == "__main__":
    sys.exit(main())
