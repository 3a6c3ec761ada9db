#!/usr/bin/env python3
"""Launches of the sweep (scripts/sweep.py) twice: measured where they run, and with all values
written (--keep-values). Compares the results of every iteration, clean or with a planted fault, and
writes the section of docs/evidence/in_place.md on them.

    scripts/in_place_sweep.py [--seed 1] [--launches 6] [--iterations 12] [--table]

Resumable: what was compared is in sweep/in_place/seed-N.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from in_place_table import SWEEP, TABLE, WAYS, compared  # noqa: E402
from mutation_sweep import rows  # noqa: E402
from mutation_sweep.experiments import experiments  # noqa: E402
from mutation_sweep.launch import Sweep, check, record_candidate, record_reference  # noqa: E402
from mutation_sweep.plan import Launch, plan  # noqa: E402
from sweep import CANDIDATE_LEGS, REFERENCE_LEGS, forget_references  # noqa: E402

OUT = ROOT / "sweep" / "in_place"


def judge(sweeps: dict[str, Sweep], launch: Launch) -> list[dict]:
    """An entry for each iteration."""
    for sweep in sweeps.values():
        forget_references(sweep, launch)
        record_reference(sweep, launch)
        record_candidate(sweep, launch)
    found = {way: list(experiments(sweep, launch)) for way, sweep in sweeps.items()}
    assert found["measured"] == found["kept"], "the two launches planted other faults"
    folders = {way: sweep.folder for way, sweep in sweeps.items()}
    entries = []
    for iteration, kind, _, _ in found["kept"]:
        results = {way: check(sweep, launch, iteration) for way, sweep in sweeps.items()}
        entry = {"launch": launch.number, "topology": launch.topology, "bf16": launch.bf16}
        entry |= {"iteration": iteration, "kind": kind}
        entries.append(entry | compared(results, folders))
    return entries


def section(entries: list[dict]) -> str:
    lines = [
        SWEEP,
        "",
        "Written by `scripts/in_place_sweep.py`: launches of [the sweep](sweep.md) with all its",
        "legs, each run twice as above. An iteration is clean, or has a planted fault. In launch 3",
        "clean ones are blamed rightly: where masks of the loss are uneven and it is no mean over",
        "all tokens, megatron-core averages the means of context-parallel ranks, another loss.",
        "No other clean one is. Behind an iteration for which a fault is planned the moments are",
        "put back, which the check finds (class C): it blames these iterations but the last also",
        "where the fault changed no number, and they count as not planted.",
        "",
        "| seed | launch | topology | precision | iterations | planted | blamed | tensors compared "
        "| the same | the same numbers |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    launches = sorted({(e["seed"], e["launch"]) for e in entries})
    for seed, number in launches:
        mine = [e for e in entries if (e["seed"], e["launch"]) == (seed, number)]
        counts = (
            len(mine),
            sum(e["kind"] == "mutant" for e in mine),
            sum(e["culprits"] > 0 for e in mine),
            sum(e["compared"] for e in mine),
            sum(not e["differs"] for e in mine),
            sum(e["every_number"] for e in mine),
        )
        precision = "bf16" if mine[0]["bf16"] else "fp32"
        cells = (seed.removeprefix("seed-"), number, mine[0]["topology"], precision, *counts)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for e in entries:
        if e["differs"]:
            place = f"{e['seed']}, launch {e['launch']}, iteration {e['iteration']}"
            lines += ["", f"Differs: {place}: {', '.join(e['differs'])}."]
    return "\n".join(lines) + "\n"


def write_section() -> list[dict]:
    entries = rows.read(OUT)
    before = TABLE.read_text().partition(SWEEP)[0].rstrip("\n")
    TABLE.write_text(before + "\n\n" + section(entries))
    return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=12, help="of a launch")
    parser.add_argument("--timeout", type=int, default=1500, help="seconds of a command")
    parser.add_argument(
        "--table", action="store_true", help="write the section and do nothing else"
    )
    options = parser.parse_args()
    folder = OUT / f"seed-{options.seed}"
    results = folder.with_suffix(".jsonl")
    done = rows.launches_of(results)
    sweeps = {
        way: Sweep(
            folder / way, options.iterations, REFERENCE_LEGS, CANDIDATE_LEGS, options.timeout, words
        )
        for way, words in WAYS.items()
    }
    for number in () if options.table else range(options.launches):
        if number in done:
            continue
        for sweep in sweeps.values():
            sweep.folder.mkdir(parents=True, exist_ok=True)
        launch = plan(options.seed, number, options.iterations, 2)
        entries = judge(sweeps, launch)
        with results.open("a") as out:
            out.writelines(json.dumps(entry) + "\n" for entry in entries)
        for sweep in sweeps.values():
            shutil.rmtree(sweep.candidate(launch))
        same = sum(not entry["differs"] for entry in entries)
        print(f"launch {number} ({launch.topology}): {same} of {len(entries)} the same", flush=True)
    return 1 if any(entry["differs"] for entry in write_section()) else 0


if __name__ == "__main__":
    sys.exit(main())
