#!/usr/bin/env python3
"""What `ttrace record` costs a step, by how much is kept: values, sketches, digests, and nothing at
all, which is what the hooks cost; beside what people do by hand. Writes
docs/evidence/record_cost.md, or docs/evidence/record_cost_gpu.md.

    bench/record_cost.py [--hidden 1024] [--layers 2] [--rounds 3] [--only beside|one-core]
    bench/record_cost.py --cuda

Each figure is the median captured step of a run over the median untraced step of the same run, and
the best of several runs. A row counts only if the run prints the losses of the untraced one. Traces
are on a RAM disk if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from training import BIN, RAM_DISK, ROOT, bytes_in, losses_of, seconds_of, train
from used_memory import held_memory

TABLE = ROOT / "docs" / "evidence" / "record_cost.md"
GPU_TABLE = ROOT / "docs" / "evidence" / "record_cost_gpu.md"
CAPTURED, STEPS = range(1, 4), 8  # step 0 warms up; those behind the captured ones are untraced
ONE_CORE = "## Where no core is free"
NOTHING = "hooks, nothing kept"
MODES = {
    NOTHING: ["--bitwise"],
    "bitwise": ["--bitwise"],
    "sketch": ["--mode", "sketch"],
    "full": [],
}
BY_HAND = {"by hand: statistics": "statistics", "by hand: `torch.save`": "save"}


@dataclass(frozen=True)
class Model:
    hidden: int
    layers: int
    flags: tuple[str, ...] = ()  # more for the trainer

    def train(self, wrapper: Sequence[str | Path] = ()) -> list[str]:
        return train(1, self.hidden, self.layers, STEPS, self.flags, wrapper)


@dataclass
class Run:
    losses: list[str]
    captured: float  # seconds
    untraced: float
    size: int = 0  # bytes of one captured iteration

    @property
    def ratio(self) -> float:
        return self.captured / self.untraced


def run(command: list[str], cores: Sequence[int]) -> Run:
    # What the script sets before it imports torch, which without_writing.py does before it.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    allowed = ",".join(map(str, cores))
    done = subprocess.run(
        ["taskset", "-c", allowed, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = seconds_of(done.stdout)
    assert len(seconds) == STEPS, done.stdout
    return Run(
        losses_of(done.stdout),
        statistics.median(seconds[i] for i in CAPTURED),
        statistics.median(seconds[CAPTURED.stop + 1 :]),
    )


def record(folder: Path, mode: str, model: Model, cores: Sequence[int]) -> Run:
    shutil.rmtree(folder, ignore_errors=True)
    steps = f"{CAPTURED.start}:{CAPTURED.stop}"
    if mode in BY_HAND:
        wrapper = (ROOT / "bench" / "by_hand.py", BY_HAND[mode], str(folder), steps)
        out = run(model.train(wrapper), cores)
    else:
        words = [str(BIN / "ttrace"), "record", "-o", str(folder), *MODES[mode]]
        nothing = [ROOT / "bench" / "without_writing.py"] if mode == NOTHING else []
        command = model.train(nothing)
        out = run([*words, "--iterations", steps, "--", *command], cores)
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


def best_of(
    rounds: int, modes: Iterable[str], folder: Path, model: Model, cores: Sequence[int]
) -> dict[str, Run]:
    plain = run(model.train(), cores)
    best: dict[str, Run] = {}
    for number, mode in itertools.product(range(rounds), modes):
        print(f"{len(cores)} cores, round {number}: {mode}", file=sys.stderr)
        got = record(folder, mode, model, cores)
        assert got.losses == plain.losses, f"{mode} changed the run"
        print(f"  {got.untraced:.3g} s untraced, {got.ratio:.2f} captured", file=sys.stderr)
        if mode not in best or got.ratio < best[mode].ratio:
            best[mode] = got
    shutil.rmtree(folder)
    return best


def rows_of(best: dict[str, Run]) -> list[str]:
    hooks = best[NOTHING]
    return [
        "| kept | untraced step | captured step | x untraced | x empty hooks | an iteration |",
        "|---|---|---|---|---|---|",
        *(
            f"| {mode} | {one.untraced:.3g} s | {one.captured:.3g} s | {one.ratio:.2f} |"
            f" {one.ratio / hooks.ratio:.2f} | {one.size / 1e6:,.1f} MB |"
            for mode, one in best.items()
        ),
        "",
    ]


def beside(model: Model, rounds: int, folder: Path) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    best = best_of(rounds, (*MODES, *BY_HAND), folder / "trace", model, cores)
    alone = write_seconds(folder / "alone", best["full"].size)
    return [
        "# What recording costs a step",
        "",
        f"Written by `bench/record_cost.py`: a GPT in bf16 (hidden {model.hidden},",
        f"{model.layers} layers, sequence of 256, vocabulary of 8,192) in one process and one",
        "thread, no reruns, traces on",
        f"{'a RAM disk' if RAM_DISK else 'a disk'}. Each row is the best of {rounds} runs:",
        "the median captured step over the median untraced step of the same run. By hand: outputs",
        "and their gradients, without inputs, parameters, gradients and state. The writer's",
        f"thread runs beside it on {platform.machine()}, {len(cores)} cores, shared and noisy.",
        "Memory had been used before and was kept from a virtual machine's host, whose time for",
        "a new page is nobody's here (`used_memory.py`).",
        "",
        *rows_of(best),
        f"To write the {best['full'].size / 1e6:,.0f} MB of *full* there, and do nothing else,",
        f"takes {alone:.2f} s, {alone / best['full'].untraced:.2f} of the untraced step.",
        "",
    ]


def on_one_core(model: Model, rounds: int, folder: Path) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))[:1]
    return [
        ONE_CORE,
        "",
        "The same on one core, which training and the writer's thread share: all that the thread",
        f"does is then seen in the step. The best of {rounds}.",
        "",
        *rows_of(best_of(rounds, MODES, folder / "trace", model, cores)),
    ]


def on_a_gpu(models: Iterable[Model], rounds: int, folder: Path) -> None:
    """Writes the document after each model."""
    import torch  # nothing else here needs it

    cores = sorted(os.sched_getaffinity(0))[:2]
    lines = [
        "# What recording costs a step on a GPU",
        "",
        f"Written by `bench/record_cost.py --cuda` on {torch.cuda.get_device_name(0)}: a GPT in",
        "bf16 in one process and two cores of the host, no reruns, traces on a RAM disk. Each row",
        f"is the best of {rounds}: the median captured step over the median untraced step of the",
        "same run, which waits for its loss. The untraced run's losses are printed by all.",
        "",
    ]
    for model in models:
        best = best_of(rounds, (*MODES, *BY_HAND), folder / "trace", model, cores)
        lines += [
            f"## Hidden {model.hidden}, {model.layers} layers, {' '.join(model.flags)}",
            "",
            *rows_of(best),
        ]
        GPU_TABLE.write_text("\n".join(lines).strip() + "\n")
    print(GPU_TABLE.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("beside", "one-core"), help="leave the other table")
    parser.add_argument("--cuda", action="store_true", help="on a GPU, at two sizes")
    options = parser.parse_args()
    if options.cuda:
        small = Model(options.hidden, options.layers, ("--cuda",))
        large = Model(2 * options.hidden, 2 * options.layers, ("--cuda", "--seq", "1024"))
        with held_memory(0.1), tempfile.TemporaryDirectory(dir=RAM_DISK) as name:
            on_a_gpu((small, large), options.rounds, Path(name))
        return
    model = Model(options.hidden, options.layers)
    first, begin, rest = TABLE.read_text().partition(ONE_CORE)
    second = begin + rest
    with held_memory(), tempfile.TemporaryDirectory(dir=RAM_DISK) as name:
        folder = Path(name)
        if options.only != "one-core":
            first = "\n".join(beside(model, options.rounds, folder))
        if options.only != "beside":
            second = "\n".join(on_one_core(model, options.rounds, folder))
    text = f"{first.strip()}\n\n{second.strip()}".strip() + "\n"
    TABLE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
