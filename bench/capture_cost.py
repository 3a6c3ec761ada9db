#!/usr/bin/env python3
"""What TTrace costs, in one table of one run: an untraced step, a captured one, each leg, the check
beside the machine's read bandwidth, and the wall time of the demo; in another, of a wider model,
each leg beside an untraced step of its own precision. Writes docs/evidence/performance.md.

    bench/capture_cost.py [--only small|legs]

With --only the other table stays as it is.

Steps are those of a small GPT on CPU, where capture is at its most expensive: on an accelerator a
step computes far more per byte. Results are checked before times are believed: a captured run must
print the losses of the untraced one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from training import BIN, RAM_DISK, ROOT, legs_of, losses_of, seconds_of, train
from used_memory import held_memory

MODEL = "--layers 4 --hidden 256 --heads 8 --kv-groups 4 --ffn 1024 --seq 128 --vocab 1024 --bf16"
STEPS = 6
CANDIDATE_LEGS = "replay,fp32,isolated,fp32.isolated"
LEGS = ("replay", "noise:1", "isolated", "isolated.noise:1", "fp32", "fp32.noise:1")
ISOLATED_FP32 = "fp32,fp32.isolated"  # needs the values of the fp32 leg
TABLE = ROOT / "docs" / "evidence" / "performance.md"

WIDE_HIDDEN, WIDE_LAYERS = 1024, 2
WIDE_STEPS, WIDE_CAPTURED = 4, range(1, 3)  # step 0 warms up
WIDE_LEGS = (
    "replay,noise:1,isolated,isolated.noise:1,fp32,fp32.noise:1,fp32.isolated,fp32.isolated.noise:1"
)
LEGS_BEGIN = "## Legs of a wider model"


def train_command(processes: int, flags: str) -> list[str]:
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(processes)]
    script = [str(ROOT / "zoo" / "train_gpt.py"), "--steps", str(STEPS), "--print-seconds"]
    return [*launcher, *script, *MODEL.split(), *flags.split()]


@dataclass
class Run:
    losses: list[str]
    seconds: list[float]  # of each step
    legs: dict[str, float]  # of those that leg_seconds.py timed
    peak: int  # bytes: anonymous memory of the largest rank process


def run(command: list[str]) -> Run:
    # What the script sets before it imports torch, which leg_seconds.py does before it.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        peak = PeakMemory(process.pid)
        with peak:
            output = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, output
    return Run(losses_of(output), seconds_of(output), legs_of(output), peak.bytes)


class PeakMemory:
    """Looks every 10 ms at the anonymous memory of a process's descendants."""

    def __init__(self, root: int) -> None:
        self.bytes = 0
        self._root = root
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *unused: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            for pid in self._descendants():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
                if found:
                    self.bytes = max(self.bytes, int(found[1]) * 1024)

    def _descendants(self) -> list[int]:
        found, waiting = [], [self._root]
        while waiting:
            pid = waiting.pop()
            try:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                continue
            found += map(int, children)
            waiting += map(int, children)
        return found


def record(folder: Path, command: list[str], *options: str) -> list[str]:
    return [str(BIN / "ttrace"), "record", "--force", "-o", str(folder), *options, "--", *command]


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*.safetensors"))


def read_bandwidth(threads: int) -> float:
    """GB/s of reading memory with this many threads: the best of several passes."""
    data = np.ones(1 << 27, dtype=np.float32)
    parts = np.array_split(data, threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(6):
            start = time.perf_counter()
            total = sum(pool.map(lambda part: float(part.max()), parts))
            best = max(best, data.nbytes / (time.perf_counter() - start) / 1e9)
            assert total == threads
    return best


def wide_legs() -> list[str]:
    """Each leg beside an untraced step of its precision, all of one run."""

    def wide(precision: tuple[str, ...], wrapper: tuple[Path, ...] = ()) -> list[str]:
        return train(1, WIDE_HIDDEN, WIDE_LAYERS, WIDE_STEPS, wrapper=wrapper, precision=precision)

    plain = {precision: run(wide(precision)) for precision in (("--bf16",), ())}
    steps = {precision: min(of.seconds[1:]) for precision, of in plain.items()}
    with tempfile.TemporaryDirectory(dir=RAM_DISK) as folder:
        command = wide(("--bf16",), (ROOT / "bench" / "leg_seconds.py",))
        options = ("--legs", WIDE_LEGS, "--iterations")
        captured = f"{WIDE_CAPTURED.start}:{WIDE_CAPTURED.stop}"
        traced = run(record(Path(folder) / "trace", command, *options, captured))
    assert traced.losses == plain["--bf16",].losses, "capture changed the run"
    assert len(traced.legs) == WIDE_LEGS.count(",") + 1, traced.legs
    lines = [
        LEGS_BEGIN,
        "",
        f"Trainer of [record_cost](record_cost.md), hidden {WIDE_HIDDEN}, {WIDE_LAYERS} layers:",
        "one run in bf16 with all legs. A leg is timed from putting state back to its last byte",
        "in the files, on a RAM disk; beside it an untraced step of the same script in bf16 or in",
        "fp32, which has the optimizer's as well, and a leg has not. The best of two.",
        "",
        "| leg | s | an untraced step of its precision | x |",
        "|---|---|---|---|",
    ]
    for leg, seconds in traced.legs.items():
        step = steps[() if leg.startswith("fp32") else ("--bf16",)]
        lines.append(f"| {leg} | {seconds:.2f} | {step:.2f} s | {seconds / step:.2f} |")
    return [*lines, ""]


def small() -> list[str]:
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        command = train_command(1, "")
        plain = run(command)
        # Steps 0 and 1 are captured; later ones show the run without capture.
        base = min(plain.seconds[1:])
        rows.append(("untraced step", f"{base:.3f} s", "1.0", "1.00"))
        captured = run(record(scratch / "real", command))
        assert captured.losses == plain.losses, "capture changed the run"
        step = min(captured.seconds[0:2])

        def peak(of: Run) -> str:
            return f"{of.peak / plain.peak:.2f}"

        rows.append(("captured step", f"{step:.3f} s", f"{step / base:.1f}", peak(captured)))
        after = min(captured.seconds[2:])
        rows.append(("step after capture", f"{after:.3f} s", f"{after / base:.2f}", ""))
        volume = size_of(scratch / "real") / 2
        rows.append(("trace of one iteration", f"{volume / 1e6:.0f} MB", "", ""))
        costs = {"": step}
        for legs in (*LEGS, ISOLATED_FP32):
            replayed = run(record(scratch / "leg", command, "--legs", legs))
            assert replayed.losses == plain.losses, f"legs {legs} changed the run"
            costs[legs] = min(replayed.seconds[0:2])
            before, _, leg = legs.rpartition(",")
            cost = costs[legs] - costs[before]
            rows.append((f"leg {leg}", f"{cost:.3f} s", f"{cost / base:.1f}", peak(replayed)))

        reference, candidate = scratch / "reference", scratch / "candidate"
        # With values: what was compared where it ran is not read by the check.
        run(record(reference, command, "--as-reference", "--keep-values"))
        parallel = train_command(2, "--tp 2 --sp")
        kept = ("--legs", CANDIDATE_LEGS, "--keep-values")
        run(record(candidate, parallel, "--graft", str(reference), *kept))
        best = 0.0
        for _ in range(3):
            out = scratch / "report"
            shutil.rmtree(out, ignore_errors=True)
            done = subprocess.run(
                [str(BIN / "ttrace"), "check", str(reference), str(candidate), "-o", str(out)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            result = json.loads((out / "result.json").read_text())
            best = max(best, result["bytes_compared"] / result["seconds"] / 1e9)
        cores = os.cpu_count() or 1
        bandwidth = read_bandwidth(cores)
        rows.append(("check of kept values, from the page cache", f"{best:.2f} GB/s", "", ""))
        share = f"{best / bandwidth:.2f} of it"
        rows.append((f"memory read, {cores} threads", f"{bandwidth:.1f} GB/s", share, ""))
    demo = time.perf_counter()
    done = subprocess.run(["scripts/demo.sh"], cwd=ROOT, capture_output=True, text=True, check=True)
    rows.append(("`make demo` after set-up", f"{time.perf_counter() - demo:.1f} s", "", ""))

    return [
        "# What it costs",
        "",
        f"Written by `bench/capture_cost.py` (`make bench`): one run on {platform.machine()},",
        f"{cores} cores, shared and noisy: read the ratios. Model: `{MODEL}`, one process, 4",
        "micro-batches. A leg costs what the captured step costs again, plus its own work, and no",
        "launch of its own. Peak memory is the anonymous memory of the rank process beside that of",
        "the untraced run.",
        "",
        "| what | figure | x untraced step | x untraced peak memory |",
        "|---|---|---|---|",
        *(f"| {what} | {figure} | {ratio} | {memory} |" for what, figure, ratio, memory in rows),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("small", "legs"))
    only = parser.parse_args().only
    before, begin, legs = TABLE.read_text().partition(LEGS_BEGIN)
    with held_memory():
        text = before if only == "legs" else "\n".join(small())
        text = text.rstrip("\n") + "\n\n"
        text += begin + legs if only == "small" else "\n".join(wide_legs())
    TABLE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
