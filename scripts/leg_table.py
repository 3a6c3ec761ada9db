#!/usr/bin/env python3
"""What each of the reference's legs is good for: planted faults that are found, and clean runs that
come close to a bound, with fewer legs than the reference has. Writes docs/legs.md.

    scripts/leg_table.py [--launches 6] [--seed 1]

The references and candidates are those of scripts/sweep.py, each recorded once, with all legs that
a row names; every row judges the same traces (`ttrace check --legs`). Resumable: what was judged is
in sweep/legs/seed-N.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep.judge import happened, in_order, judge_clean, judge_mutant  # noqa: E402
from mutation_sweep.launch import (  # noqa: E402
    LaunchFailed,
    Sweep,
    check,
    read_log,
    record_candidate,
    record_reference,
)
from mutation_sweep.plan import Launch, plan  # noqa: E402

OUT = ROOT / "sweep" / "legs"
TABLE = ROOT / "docs" / "legs.md"
ALL = "replay,noise:3,fp32,fp32.noise:3,isolated.noise:2,fp32.isolated.noise:2"
CANDIDATE_LEGS = "replay,fp32,isolated,fp32.isolated"
# Steps in bf16 that one in fp32 takes on a CPU without instructions for bf16; the other way round
# an fp32 run has no fp32 legs.
FP32_STEPS = 3
# Legs of low precision, and those in fp32: real and replay are always there.
ROWS = (
    ALL,
    "replay,noise:2,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:2",
    "replay,noise:3,fp32,fp32.noise:3,isolated.noise:1,fp32.isolated.noise:1",
    "replay,noise:3,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:1",
    "replay,noise:3,fp32,fp32.noise:3,isolated.noise:2",
    "replay,noise:2,fp32,fp32.noise:2,isolated.noise:1,fp32.isolated.noise:1",
    "replay,noise:1,fp32,fp32.noise:1,isolated.noise:1,fp32.isolated.noise:1",
    "replay,noise:3,fp32,fp32.noise:3",
    "replay,noise:3,fp32,isolated.noise:2",
    "replay,noise:3,isolated.noise:2",
    "replay,noise:3",
    "replay,noise:1",
)


@dataclass(frozen=True)
class Cost:
    """Steps of an iteration with these legs, the real one included."""

    low: int
    fp32: int

    @staticmethod
    def of(legs: str) -> Cost:
        low, fp32 = 1, 0
        for word in legs.split(","):
            name, _, count = word.partition(":")
            if name.startswith("fp32"):
                fp32 += int(count or 1)
            else:
                low += int(count or 1)
        return Cost(low, fp32)


def judge(sweep: Sweep, launch: Launch) -> list[dict[str, Any]]:
    """One entry for each iteration that was clean or a mutant, and each row."""
    log = read_log(sweep, launch)
    modules = in_order(log)
    planned = {mutant.iteration for mutant in launch.mutants}
    entries = []
    for iteration in range(sweep.iterations):
        mutant = happened(log, iteration)
        if iteration in planned and mutant is None:
            continue  # it changed nothing
        if mutant is not None:
            mutant["bf16"] = launch.bf16
            mutant["experts"] = "--experts" in launch.model
        for legs in ROWS:
            result = check(sweep, launch, iteration, legs)
            judged = (
                judge_clean(result) if mutant is None else judge_mutant(result, mutant, modules)
            )
            entries.append(
                {
                    "legs": legs,
                    "bf16": launch.bf16,
                    "launch": launch.number,
                    "iteration": iteration,
                    "mutant": mutant is not None,
                    "relative": None if mutant is None else mutant["relative"],
                    "verdict": judged["verdict"],
                    "flagged": bool(judged["culprits"]),
                    "placed": judged.get("window") == 0,
                    "class": judged.get("class"),
                    "headroom": judged["headroom"],
                }
            )
    return entries


def row(legs: str, entries: list[dict[str, Any]]) -> str:
    mine = [entry for entry in entries if entry["legs"] == legs]
    mutants = [entry for entry in mine if entry["mutant"]]
    clean = [entry for entry in mine if not entry["mutant"]]
    flagged = [entry for entry in mutants if entry["flagged"]]
    cost = Cost.of(legs)
    rooms = [entry["headroom"] for entry in clean if entry["headroom"] is not None]
    cells = (
        f"`{legs}`",
        f"{cost.low} + {cost.fp32}",
        f"{cost.low + FP32_STEPS * cost.fp32}",
        f"{len(flagged)} of {len(mutants)}",
        f"{sum(entry['placed'] for entry in flagged)}",
        f"{sum(entry['class'] == 'right' for entry in flagged)}",
        f"{sum(entry['flagged'] for entry in clean)} of {len(clean)}",
        f"{sum(entry['verdict'] == 'inconclusive' for entry in clean)}",
        f"{max(rooms):.2f}" if rooms else "",
        f"{statistics.median(rooms):.2f}" if rooms else "",
    )
    return f"| {' | '.join(cells)} |"


def write_table(entries: list[dict[str, Any]], precision: str) -> list[str]:
    launches = len({(entry["seed"], entry["launch"]) for entry in entries})
    return [
        "",
        f"## {precision}",
        "",
        f"{launches} launches.",
        "",
        "| legs of the reference | steps: low + fp32 | steps of bf16 | found | placed | class right"
        " | clean flagged | clean inconclusive | highest clean headroom | median |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(row(legs, entries) for legs in ROWS),
    ]


def write_page() -> None:
    entries = [
        json.loads(line) | {"seed": path.stem}
        for path in sorted(OUT.glob("seed-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    lines = [
        "# What the legs of a reference are good for",
        "",
        "Written by `scripts/leg_table.py`: launches of the mutation sweep (`scripts/sweep.py`),",
        "each recorded once and judged by fewer and fewer of the reference's legs (`ttrace check",
        "--legs`). Found: something is blamed in an iteration with a planted fault. Placed: the",
        "first culprit is where the fault was planted. Clean flagged: false alarms. Headroom is",
        "how close the worst tensor of a clean iteration comes to its bound. A step in fp32 counts",
        f"as {FP32_STEPS} in bf16, as on the CPUs where this was run; on an accelerator it is 10",
        "and more.",
    ]
    for precision, bf16 in (("bf16", True), ("fp32", False)):
        chosen = [entry for entry in entries if entry["bf16"] is bf16]
        if chosen:
            lines += write_table(chosen, precision)
    TABLE.write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="leave out launches before this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=16, help="of a launch")
    parser.add_argument("--timeout", type=int, default=1500, help="seconds of one training command")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    options = parser.parse_args()
    folder = OUT / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder.with_suffix(".jsonl")
    done = set()
    if results.exists():
        done = {json.loads(line)["launch"] for line in results.read_text().splitlines()}
    sweep = Sweep(folder, options.iterations, ALL, CANDIDATE_LEGS, options.timeout)
    last = options.first + options.launches
    for number in () if options.table else range(options.first, last):
        if number in done:
            continue
        launch = plan(options.seed, number, options.iterations, 2)
        if "uneven" in launch.model and "--cp" in launch.flags:
            continue  # Megatron's own loss is wrong there (docs/case_study.md, B10)
        try:
            record_reference(sweep, launch)
            record_candidate(sweep, launch)
            entries = judge(sweep, launch)
        except LaunchFailed as failure:
            print(f"launch {number} failed: {failure}", file=sys.stderr)
            continue
        with results.open("a") as out:
            out.writelines(json.dumps(entry) + "\n" for entry in entries)
        shutil.rmtree(sweep.candidate(launch), ignore_errors=True)
        print(f"launch {number} ({launch.topology}): {len(entries)} verdicts", flush=True)
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
