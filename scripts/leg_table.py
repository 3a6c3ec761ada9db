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
import functools
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep import rows  # noqa: E402
from mutation_sweep.launch import (  # noqa: E402
    LaunchFailed,
    Sweep,
    check,
    record_candidate,
    record_reference,
)
from mutation_sweep.plan import plan  # noqa: E402

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


def write_page() -> None:
    entries = rows.read(OUT)
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
        if not chosen:
            continue
        launches = len({(entry["seed"], entry["launch"]) for entry in chosen})
        lines += ["", f"## {precision}", "", f"{launches} launches.", ""]
        lines += [
            f"| legs of the reference | steps: low + fp32 | steps of bf16 | {rows.HEAD} |",
            f"|---|---|---|{rows.HEAD_RULE}|",
        ]
        for legs in ROWS:
            cost = Cost.of(legs)
            lines.append(
                f"| `{legs}` | {cost.low} + {cost.fp32} | {cost.low + FP32_STEPS * cost.fp32} | "
                f"{rows.cells(legs, chosen)} |"
            )
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
    sweep = Sweep(folder, options.iterations, ALL, CANDIDATE_LEGS, options.timeout)
    numbers = range(options.first, options.first + options.launches)
    for number in () if options.table else sorted(set(numbers) - rows.launches_of(results)):
        launch = plan(options.seed, number, options.iterations, 2)
        if not rows.is_judged(launch):
            continue
        try:
            record_reference(sweep, launch)
            record_candidate(sweep, launch)
            ways = {legs: functools.partial(check, sweep, launch, legs=legs) for legs in ROWS}
            entries = rows.judge(sweep, launch, ways)
        except LaunchFailed as failure:
            print(f"launch {number} failed: {failure}", file=sys.stderr)
            continue
        rows.add(results, entries)
        shutil.rmtree(sweep.candidate(launch), ignore_errors=True)
        print(f"launch {number} ({launch.topology}): {len(entries)} verdicts", flush=True)
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
