#!/usr/bin/env python3
"""What a reference and a candidate take with all their legs, in time and on the disk: with noise
measured where it runs, and with --keep-values, by which everything is written. Writes
docs/trace_cost.md.

    bench/trace_cost.py [--hidden 256,512,1024] [--layers 2,8]

Every size is one run of each kind, of one captured iteration. A row counts only if both references
give the candidate the same result, but for the time that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TABLE = ROOT / "docs" / "trace_cost.md"
INTRODUCTION = (
    "# What traces take",
    "",
    "Written by `bench/trace_cost.py`: one captured iteration of a GPT in bf16 (sequence of 256,",
    "vocabulary of 8,192), the reference of one process with its default legs, the candidate of",
    "two (TP 2, SP) with its own. *measured*: as it is by default; *kept*: with `--keep-values`.",
    "Both give the same result, which is asserted. Time is in untraced steps of the same run,",
    "sizes are those of tensors on the disk, the check is from the page cache. On",
)
HEAD = (
    "",
    "| hidden | layers | noise legs | reference | candidate | check |",
    "|---|---|---|---|---|---|",
)
STEPS = 5  # the first is captured, the others show an untraced step


def train(processes: int, hidden: int, layers: int, *flags: str) -> list[str]:
    launcher = [BIN / "torchrun", "--standalone", "--nproc-per-node", processes]
    model = ["--hidden", hidden, "--layers", layers, "--heads", 16, "--kv-groups", 16]
    sizes = ["--ffn", 4 * hidden, "--seq", 256, "--vocab", 8192, "--bf16"]
    script = [ROOT / "zoo" / "train_gpt.py", "--steps", STEPS, "--print-seconds"]
    return [str(word) for word in (*launcher, *script, *model, *sizes, *flags)]


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Recorded:
    iteration: float  # seconds of the captured one, with its legs
    step: float  # of the fastest untraced one
    size: int  # of the trace's tensors

    @property
    def words(self) -> str:
        return f"{self.iteration / self.step:.1f} steps, {self.size / 1e9:.2f} GB"


def record(folder: Path, command: list[str], *options: str) -> Recorded:
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--iterations", "0:1", "--dropout", "off", *options)
    text = output_of([str(BIN / "ttrace"), "record", "-o", str(folder), *options, "--", *command])
    seconds = [float(s) for s in re.findall(r"^seconds \d+ ([0-9.]+)$", text, re.MULTILINE)]
    assert len(seconds) == STEPS, text
    size = sum(p.stat().st_size for p in folder.rglob("*.safetensors"))
    return Recorded(seconds[0], min(seconds[1:]), size)


@dataclass
class Checked:
    seconds: float
    result: dict


def check(reference: Path, candidate: Path, out: Path) -> Checked:
    best = float("inf")
    for _ in range(2):
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        output_of([str(BIN / "ttrace"), "check", str(reference), str(candidate), "-o", str(out)])
        best = min(best, time.perf_counter() - start)
    result = json.loads((out / "result.json").read_text())
    del result["seconds"], result["sides"]
    return Checked(best, result)


def rows_of(hidden: int, layers: int) -> list[str]:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = scratch / "reference"
        results = []
        for kind, options in (("measured", []), ("kept", ["--keep-values"])):
            print(f"hidden {hidden}, {layers} layers, {kind}", file=sys.stderr)
            one = train(1, hidden, layers)
            reference = record(folder, one, "--as-reference", *options)
            two = train(2, hidden, layers, "--tp", "2", "--sp")
            graft = ("--graft", str(folder), *options)
            candidate = record(scratch / "candidate", two, *graft)
            checked = check(folder, scratch / "candidate", scratch / "report")
            results.append(checked.result)
            rows.append(
                f"| {hidden} | {layers} | {kind} | {reference.words} | {candidate.words} |"
                f" {checked.seconds:.1f} s |"
            )
        assert results[0] == results[1], "the two references do not give the same result"
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", default="256,512,1024")
    parser.add_argument("--layers", default="2,8", help="beyond the first of hidden 256 alone")
    arguments = parser.parse_args()
    hidden = [int(word) for word in arguments.hidden.split(",")]
    layers = [int(word) for word in arguments.layers.split(",")]
    sizes = [(h, layers[0]) for h in hidden] + [(hidden[0], n) for n in layers[1:]]
    rows = [row for size in sizes for row in rows_of(*size)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, shared and noisy"
    TABLE.write_text("\n".join([*INTRODUCTION, machine + ".", *HEAD, *rows, ""]))
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
