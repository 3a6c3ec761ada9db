"""The zoo's trainer of a GPT as benchmarks run it, and what it prints."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
RAM_DISK = "/dev/shm" if os.path.isdir("/dev/shm") else None


def train(
    processes: int,
    hidden: int,
    layers: int,
    steps: int,
    flags: Sequence[str] = (),
    wrapper: Sequence[str | Path] = (),
    precision: Sequence[str] = ("--bf16",),
) -> list[str]:
    """`wrapper`: a script, with its arguments, that runs the trainer. `precision`: none is fp32."""
    launcher = [BIN / "torchrun", "--standalone", "--nproc-per-node", processes]
    model = ["--hidden", hidden, "--layers", layers, "--heads", 16, "--kv-groups", 16]
    sizes = ["--ffn", 4 * hidden, "--seq", 256, "--vocab", 8192, *precision]
    script = [ROOT / "zoo" / "train_gpt.py", "--steps", steps, "--print-seconds"]
    return [str(word) for word in (*launcher, *wrapper, *script, *model, *sizes, *flags)]


def seconds_of(output: str) -> list[float]:
    """Of each step."""
    return [float(s) for s in re.findall(r"^seconds \d+ ([0-9.]+)$", output, re.MULTILINE)]


def legs_of(output: str) -> dict[str, float]:
    """The least seconds of each rerun, by leg_seconds.py."""
    least: dict[str, float] = {}
    for name, seconds in re.findall(r"^leg (\S+) ([0-9.]+)$", output, re.MULTILINE):
        least[name] = min(float(seconds), least.get(name, float("inf")))
    return least


def losses_of(output: str) -> list[str]:
    return re.findall(r"^step .*$", output, re.MULTILINE)


def bytes_in(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
