#!/usr/bin/env python3
"""What TTrace costs, in one table of one run: an untraced step, a captured one, each leg, the check
beside the machine's read bandwidth, and the wall time of the demo. Writes docs/performance.md.

Steps are those of a small GPT on CPU, where capture is at its most expensive: on an accelerator a
step computes far more per byte. Results are checked before times are believed: a captured run must
print the losses of the untraced one.
"""

from __future__ import annotations

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
from training import BIN, ROOT, losses_of, seconds_of

MODEL = "--layers 4 --hidden 256 --heads 8 --kv-groups 4 --ffn 1024 --seq 128 --vocab 1024 --bf16"
STEPS = 6
CANDIDATE_LEGS = "replay,fp32,isolated,fp32.isolated"
LEGS = ("replay", "noise:1", "isolated", "isolated.noise:1", "fp32", "fp32.noise:1")
ISOLATED_FP32 = "fp32,fp32.isolated"  # needs the values of the fp32 leg
TABLE = ROOT / "docs" / "performance.md"


def train_command(processes: int, flags: str) -> list[str]:
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(processes)]
    script = [str(ROOT / "zoo" / "train_gpt.py"), "--steps", str(STEPS), "--print-seconds"]
    return [*launcher, *script, *MODEL.split(), *flags.split()]


@dataclass
class Run:
    losses: list[str]
    seconds: list[float]  # of each step
    peak: int  # bytes: anonymous memory of the largest rank process


def run(command: list[str]) -> Run:
    with subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        peak = PeakMemory(process.pid)
        with peak:
            output = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, output
    return Run(losses_of(output), seconds_of(output), peak.bytes)


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


def main() -> None:
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
        run(record(reference, command, "--as-reference"))
        parallel = train_command(2, "--tp 2 --sp")
        run(record(candidate, parallel, "--graft", str(reference), "--legs", CANDIDATE_LEGS))
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
        rows.append(("check, from the page cache", f"{best:.2f} GB/s", "", ""))
        share = f"{best / bandwidth:.2f} of it"
        rows.append((f"memory read, {cores} threads", f"{bandwidth:.1f} GB/s", share, ""))
    demo = time.perf_counter()
    done = subprocess.run(["scripts/demo.sh"], cwd=ROOT, capture_output=True, text=True, check=True)
    rows.append(("`make demo` after set-up", f"{time.perf_counter() - demo:.1f} s", "", ""))

    lines = [
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
    TABLE.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
