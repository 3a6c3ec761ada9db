#!/usr/bin/env python3
"""What a reference and a candidate take with all their legs, in time and on the disk, and how it
grows with the width, the depth and the number of ranks. Writes docs/evidence/trace_cost.md.

    bench/trace_cost.py [--hidden 256,512,1024,2048] [--layers 2,8,24,48] [--ranks 1,2,4,8]
                        [--kept 512] [--add]

Every size is one run of each kind, of one captured iteration. Up to hidden `--kept` it is made
again with --keep-values, by which everything is written, and has to give the same result but for
the time that it took. With --add the rows of other sizes that the table has stay in it.
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

from training import BIN, ROOT, bytes_in, seconds_of, train
from used_memory import held_memory

TABLE = ROOT / "docs" / "evidence" / "trace_cost.md"
INTRODUCTION = (
    "# What traces take",
    "",
    "Written by `bench/trace_cost.py`: one captured iteration of a GPT in bf16 (sequence of 256,",
    "vocabulary of 8,192), the reference of one process with its default legs, the candidate of",
    "two (TP 2, SP), or of as many as said, with its own. *measured*, as by default: noise legs",
    "are measured, and the candidate is compared with the reference, where they run;",
    "*kept*: `--keep-values`; *sketch*: `--mode sketch` for the candidate. Measured and kept give",
    "the same result, which is asserted. Time is in untraced steps of the same run, sizes are",
    "those of all files, the check is the better of two, from the page cache. More ranks than",
    "cores share them: their steps are slower, traced or not. Memory had been used before and was",
    "kept from a virtual machine's host (`used_memory.py`). On",
)
HEAD = (
    "",
    "| hidden | layers | ranks | legs | reference | candidate | check |",
    "|---|---|---|---|---|---|---|",
)
LAYOUTS = {
    1: (),
    2: ("--tp", "2", "--sp"),
    4: ("--tp", "2", "--sp", "--pp", "2"),
    8: ("--tp", "2", "--sp", "--pp", "2", "--cp", "2"),
}
Size = tuple[int, int, int]  # hidden, layers, ranks of the candidate
STEPS = 5  # the first is captured, the others show an untraced step


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Recorded:
    iteration: float  # seconds of the captured one, with its legs
    step: float  # of the fastest untraced one
    size: int  # of all files

    @property
    def words(self) -> str:
        return f"{self.iteration / self.step:.1f} steps, {self.size / 1e9:.3f} GB"


def record(folder: Path, command: list[str], *options: str) -> Recorded:
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--iterations", "0:1", "--dropout", "off", *options)
    text = output_of([str(BIN / "ttrace"), "record", "-o", str(folder), *options, "--", *command])
    seconds = seconds_of(text)
    assert len(seconds) == STEPS, text
    return Recorded(seconds[0], min(seconds[1:]), bytes_in(folder))


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


def rows_of(hidden: int, layers: int, ranks: int, *, kept: bool) -> list[str]:
    rows = []
    kinds: list[tuple[str, list[str], list[str]]] = [("measured", [], [])]
    if ranks > 1:
        kinds.append(("sketch", [], ["--mode", "sketch"]))
    if kept:
        kinds.append(("kept", ["--keep-values"], ["--keep-values"]))
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder, candidate = Path(name) / "reference", Path(name) / "candidate"
        for kind, options, of_candidate in kinds:
            print(f"hidden {hidden}, {layers} layers, {ranks} ranks, {kind}", file=sys.stderr)
            if kind != "sketch":
                one = train(1, hidden, layers, STEPS)
                reference = record(folder, one, "--as-reference", *options)
            several = train(ranks, hidden, layers, STEPS, LAYOUTS[ranks])
            graft = ("--graft", str(folder), *of_candidate)
            recorded = record(candidate, several, *graft)
            checked = check(folder, candidate, Path(name) / "report")
            results[kind] = checked.result
            rows.append(
                f"| {hidden} | {layers} | {ranks} | {kind} | {reference.words} | {recorded.words} |"
                f" {checked.seconds:.1f} s |"
            )
    if kept:
        assert results["measured"] == results["kept"], "measured is not what is kept"
    return rows


def rows_of_table() -> dict[Size, list[str]]:
    rows: dict[Size, list[str]] = {}
    for line in TABLE.read_text().splitlines():
        if size := re.match(r"\| (\d+) \| (\d+) \| (\d+) \|", line):
            hidden, layers, ranks = map(int, size.groups())
            rows.setdefault((hidden, layers, ranks), []).append(line)
    return rows


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", default="256,512,1024,2048")
    parser.add_argument("--layers", default="2,8,24,48", help="at the first of --hidden")
    parser.add_argument("--ranks", default="1,2,4,8", help="at the first of --hidden and 8 layers")
    parser.add_argument("--kept", type=int, default=512)
    parser.add_argument("--add", action="store_true")
    options = parser.parse_args()
    hidden = numbers(options.hidden)
    sizes = [(h, 2, 2) for h in hidden]
    sizes += [(hidden[0], layers, 2) for layers in numbers(options.layers)]
    sizes += [(hidden[0], 8, ranks) for ranks in numbers(options.ranks)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, shared and noisy."
    rows = rows_of_table() if options.add else {}
    with held_memory():
        for size in sorted(dict.fromkeys(sizes), key=lambda size: size[0] ** 2 * size[1] * size[2]):
            rows[size] = rows_of(*size, kept=size[0] <= options.kept and size[1:] == (2, 2))
            body = [row for key in sorted(rows) for row in rows[key]]
            TABLE.write_text("\n".join([*INTRODUCTION, machine, *HEAD, *body, ""]))
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
