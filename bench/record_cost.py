#!/usr/bin/env python3
"""What `ttrace record` costs a step, by how much is kept: values, sketches, digests, and nothing at
all, which is what the hooks cost; beside what people do by hand. Writes docs/record_cost.md.

    bench/record_cost.py [--hidden 1024] [--layers 2] [--rounds 3]

Each figure is the median captured step of a run over the median untraced step of the same run, and
the best of several runs. A row counts only if the run prints the losses of the untraced one. Traces
are on a RAM disk if there is one.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from training import BIN, ROOT, bytes_in, losses_of, seconds_of, train
from used_memory import held_memory

TABLE = ROOT / "docs" / "record_cost.md"
CAPTURED, STEPS = range(1, 4), 8  # step 0 warms up; those behind the captured ones are untraced
NOTHING = "hooks, nothing kept"
MODES = {
    NOTHING: ["--mode", "digest"],
    "digest": ["--mode", "digest"],
    "sketch": ["--mode", "sketch"],
    "full": [],
}
BY_HAND = {"by hand: statistics": "statistics", "by hand: `torch.save`": "save"}


@dataclass
class Run:
    losses: list[str]
    captured: float  # seconds
    untraced: float
    size: int = 0  # bytes of one captured iteration

    @property
    def ratio(self) -> float:
        return self.captured / self.untraced


def run(command: list[str]) -> Run:
    # What the script sets before it imports torch, which without_writing.py does before it.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = seconds_of(done.stdout)
    assert len(seconds) == STEPS, done.stdout
    return Run(
        losses_of(done.stdout),
        statistics.median(seconds[i] for i in CAPTURED),
        statistics.median(seconds[CAPTURED.stop + 1 :]),
    )


def record(folder: Path, mode: str, hidden: int, layers: int) -> Run:
    shutil.rmtree(folder, ignore_errors=True)
    steps = f"{CAPTURED.start}:{CAPTURED.stop}"
    if mode in BY_HAND:
        wrapper = (ROOT / "bench" / "by_hand.py", BY_HAND[mode], str(folder), steps)
        out = run(train(1, hidden, layers, STEPS, wrapper=wrapper))
    else:
        words = [str(BIN / "ttrace"), "record", "-o", str(folder), *MODES[mode]]
        nothing = [ROOT / "bench" / "without_writing.py"] if mode == NOTHING else []
        command = train(1, hidden, layers, STEPS, wrapper=nothing)
        out = run([*words, "--iterations", steps, "--", *command])
    out.size = bytes_in(folder) // len(CAPTURED)
    return out


def write_seconds(path: Path, size: int) -> float:
    """Of one thread that does nothing else: the best of three, into memory that was used before."""
    chunk = bytes(16 << 20)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(chunk)):
                file.write(chunk)
        best = min(best, time.perf_counter() - start)
    path.unlink()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    size = (options.hidden, options.layers)
    best: dict[str, Run] = {}
    scratch = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with held_memory(), tempfile.TemporaryDirectory(dir=scratch) as folder:
        plain = run(train(1, *size, STEPS))
        for number in range(options.rounds):
            for mode in (*MODES, *BY_HAND):
                print(f"round {number}: {mode}", file=sys.stderr)
                got = record(Path(folder) / "trace", mode, *size)
                assert got.losses == plain.losses, f"{mode} changed the run"
                if mode not in best or got.ratio < best[mode].ratio:
                    best[mode] = got
        shutil.rmtree(Path(folder) / "trace")
        alone = write_seconds(Path(folder) / "alone", best["full"].size)
    hooks = best[NOTHING]
    lines = [
        "# What recording costs a step",
        "",
        "Written by `bench/record_cost.py`: a GPT in bf16 (hidden "
        f"{options.hidden}, {options.layers} layers,",
        "sequence of 256, vocabulary of 8,192) in one process and one thread, no reruns, traces on",
        f"{'a RAM disk' if scratch else 'a disk'}. Each row is the best of {options.rounds} runs:",
        "the median captured step over the median untraced step of the same run. By hand: outputs",
        "and their gradients, without inputs, parameters, gradients and state. The writer's",
        f"thread runs beside it on {platform.machine()}, {os.cpu_count()} cores, shared and noisy.",
        "Memory had been used before and was kept from a virtual machine's host, whose time for",
        "a new page is nobody's here (`used_memory.py`).",
        "",
        "| kept | untraced step | captured step | x untraced | x empty hooks | an iteration |",
        "|---|---|---|---|---|---|",
        *(
            f"| {mode} | {one.untraced:.2f} s | {one.captured:.2f} s | {one.ratio:.2f} |"
            f" {one.ratio / hooks.ratio:.2f} | {one.size / 1e6:,.1f} MB |"
            for mode, one in best.items()
        ),
        "",
        f"To write the {best['full'].size / 1e6:,.0f} MB of *full* there, and do nothing else,",
        f"takes {alone:.2f} s, {alone / best['full'].untraced:.2f} of the untraced step.",
        "",
    ]
    TABLE.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
