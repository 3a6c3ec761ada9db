#!/usr/bin/env python3
"""Compares clean runs of many sizes with one process and writes docs/evidence/sizes.md: no false
alarm, and how near the largest value of each test comes to its bound.

    scripts/sizes.py                 every model and topology; resumable, hours on two cores
    scripts/sizes.py --only "seq"    models whose name contains this
    scripts/sizes.py --minutes 60    start nothing after so long
    scripts/sizes.py --table         only write the table

Finished runs are kept in sizes/results.jsonl (delete it to start over). What was not judged
"within" keeps its traces in sizes/, where `ttrace check` can be asked again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from headroom import largest  # noqa: E402
from size_table.plan import Candidate, Model, grid, second_draw  # noqa: E402
from size_table.table import write_table  # noqa: E402

BIN = Path(sys.executable).parent
OUT = ROOT / "sizes"
RESULTS = OUT / "results.jsonl"
TABLE = ROOT / "docs" / "evidence" / "sizes.md"
SECOND_DRAW = 14
TIMEOUT = "30m"


def run(words: list[str], log: Path) -> tuple[int, float]:
    started = time.monotonic()
    environment = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as out:
        out.write(f"$ {shlex.join(words)}\n")
        out.flush()
        done = subprocess.run(words, stdout=out, stderr=out, cwd=ROOT, env=environment)
    return done.returncode, time.monotonic() - started


def training(model: Model, processes: int, flags: tuple[str, ...]) -> list[str]:
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(processes)]
    # The update of the captured step is seen at the start of the next.
    steps = ["--steps", str(model.iteration + 2)]
    return ["--", *launcher, str(ROOT / "zoo" / "train_gpt.py"), *steps, *model.flags, *flags]


def record(model: Model, folder: Path, log: Path, words: list[str], run_of: list[str]) -> float:
    captured = ["--iterations", f"{model.iteration}:{model.iteration + 1}"]
    common = [str(BIN / "ttrace"), "record", "--force", "--timeout", TIMEOUT, "-o", str(folder)]
    code, seconds = run([*common, *captured, *words, *run_of], log)
    if code != 0:
        raise RuntimeError(f"exit {code}, see {log}")
    return seconds


def judge(model: Model, candidate: Candidate, reference: Path) -> dict:
    """One line of the results. Raises RuntimeError if a command failed."""
    name = re.sub(r"\W+", "-", f"{model.draw}-{model.name}-{candidate.name}")
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seconds = record(
        model,
        folder / "trace",
        OUT / f"{name}.log",
        ["--graft", str(reference)],
        training(model, candidate.processes, candidate.flags),
    )
    words = [str(BIN / "ttrace"), "check", str(reference), str(folder / "trace")]
    code, check_seconds = run([*words, "-o", str(folder / "report")], OUT / f"{name}.check.log")
    found = folder / "report" / "result.json"
    if not found.exists():
        raise RuntimeError(f"exit {code} without a result: {OUT / name}.check.log")
    result = json.loads(found.read_text())
    if result["verdict"] in ("within", "bitwise_equal"):
        shutil.rmtree(folder)
    return {
        "verdict": result["verdict"],
        "reason": result["reason"],
        "culprits": [f"{c['fqn']} {c['role']}" for c in result["culprits"]],
        "tests": result["tests"],
        "not_checkable": result["not_checkable"],
        "judged": result["coverage"]["compared"],
        "headroom": {
            f"{leg} {statistic}": [value, tensor]
            for (leg, statistic), (value, tensor) in largest(result).items()
        },
        "seconds": round(seconds, 1),
        "check_seconds": round(check_seconds, 1),
    }


def identity(model: Model, candidate: Candidate) -> dict:
    return {
        "draw": model.draw,
        "axis": model.axis,
        "size": model.size,
        "bf16": model.bf16,
        "flags": shlex.join(model.flags),
        "candidate": candidate.name,
    }


def read_results() -> list[dict]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


def compare(model: Model, done: list[dict]) -> None:
    wanted = {candidate: identity(model, candidate) for candidate in model.candidates}
    known = [{key: line.get(key) for key in wanted[model.candidates[0]]} for line in done]
    missing = {c: line for c, line in wanted.items() if line not in known}
    if not missing:
        return
    reference = OUT / "reference"
    log = OUT / "reference.log"
    seconds = record(model, reference, log, ["--as-reference"], training(model, 1, ()))
    print(f"{model.name}: reference {seconds:.0f} s", flush=True)
    for candidate, line in missing.items():
        line |= judge(model, candidate, reference)
        done.append(line)
        with RESULTS.open("a") as out:
            out.write(json.dumps(line) + "\n")
        worst = max((value for value, _ in line["headroom"].values()), default=0.0)
        print(
            f"{model.name} {candidate.name}: {line['verdict']}, {line['tests']} tests, "
            f"largest headroom {worst:.2f}, {line['seconds']:.0f} + {line['check_seconds']:.0f} s",
            flush=True,
        )
    shutil.rmtree(reference)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--draw", type=int, choices=(1, 2), help="of one draw alone")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    started, done, failures = time.monotonic(), read_results(), 0
    for model in () if options.table else [*grid(), *second_draw(SECOND_DRAW)]:
        wanted = options.only in model.name and options.draw in (None, model.draw)
        if wanted and time.monotonic() - started < 60 * options.minutes:
            try:
                compare(model, done)
            except RuntimeError as failure:
                failures += 1
                print(f"{model.name} failed: {failure}", flush=True)
    write_table(TABLE, done)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
