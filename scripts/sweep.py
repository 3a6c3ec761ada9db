#!/usr/bin/env python3
"""Plants faults by mechanism at random places of random topologies, and counts what is found.

    scripts/sweep.py --mutants 300            until so many have changed a number
    scripts/sweep.py --only 17 --keep         one launch again, with its traces (sweep/)
    scripts/sweep.py --seed 2                 other launches; the table counts those of all seeds
    scripts/sweep.py --again                  judge the traces that --keep kept once more
    scripts/sweep.py --table                  only write docs/evidence/sweep.md

Resumable: finished launches are kept in sweep/seed-N/results.jsonl (delete it, or pass --fresh, to
start over). Launches follow from --seed and their number alone: up to seed 5 of dense models over
TP, SP, CP, PP and DP, from seed 6 on with virtual stages, experts or the distributed optimizer.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import shutil
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
import rank_server  # noqa: E402
from mutation_sweep.experiments import experiments  # noqa: E402
from mutation_sweep.judge import judge_clean, judge_mutant  # noqa: E402
from mutation_sweep.launch import (  # noqa: E402
    LaunchFailed,
    Sweep,
    check,
    command,
    record_candidate,
    record_reference,
)
from mutation_sweep.plan import Launch, plan  # noqa: E402
from mutation_sweep.table import write_table  # noqa: E402

OUT = ROOT / "sweep"
RESULTS = "results.jsonl"
KEPT = "kept"  # beside a reference that a false alarm's traces need
TABLE = ROOT / "docs" / "evidence" / "sweep.md"
REFERENCE_LEGS = "noise:3,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:1"
# So many launches that fail one after the other have one reason, which more would not cure.
FAILURES_IN_A_ROW = 3
CANDIDATE_LEGS = "replay,fp32,isolated,fp32.isolated"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many must have happened")
    parser.add_argument("--iterations", type=int, default=33, help="of a launch")
    parser.add_argument("--clean", type=int, default=2, metavar="N", help="every N-th of them")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no launch later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="leave out launches before this one")
    parser.add_argument("--only", type=int, help="this launch alone, result printed, not kept")
    parser.add_argument("--reference-legs", default=REFERENCE_LEGS)
    parser.add_argument("--candidate-legs", default=CANDIDATE_LEGS)
    parser.add_argument("--timeout", type=int, default=1500, help="seconds of one training command")
    parser.add_argument("--again", action="store_true", help="judge kept traces again")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--keep", action="store_true", help="do not delete traces")
    return parser.parse_args()


def judge(sweep: Sweep, launch: Launch) -> list[dict[str, Any]]:
    """One entry an iteration: clean, mutant, or a mutant that changed nothing."""
    entries = []
    for iteration, kind, mutant, modules in experiments(sweep, launch):
        entry: dict[str, Any] = {"iteration": iteration, "kind": kind}
        if kind == "clean":
            entry |= judge_clean(check(sweep, launch, iteration))
        elif mutant is not None:
            entry |= {"mutant": mutant}
            entry |= judge_mutant(check(sweep, launch, iteration), mutant, modules)
        entries.append(entry)
    return entries


def finish(sweep: Sweep, launch: Launch, started: float, keep: bool) -> dict[str, Any]:
    """Judges a launch that has run, and deletes its traces."""
    line: dict[str, Any] = {
        "launch": launch.number,
        "topology": launch.topology,
        "recompute": launch.recompute,
        "bf16": launch.bf16,
        "command": shlex.join(command(sweep, launch, True)),
    }
    try:
        line["experiments"] = judge(sweep, launch)
    except LaunchFailed as failure:
        line["failed"] = str(failure)
    line["seconds"] = round(time.monotonic() - started, 1)
    if any(map(is_alarm, line.get("experiments", ()))):
        keep = True  # nothing is worth more than a look at what was wrongly blamed
        (sweep.reference(launch) / KEPT).touch()
    if not keep:
        shutil.rmtree(sweep.candidate(launch), ignore_errors=True)
        for path in sweep.folder.glob(f"mutants-{launch.number}.json*"):
            path.unlink()
    return line


def forget_references(sweep: Sweep, launch: Launch) -> None:
    """Deletes those of earlier launches, all of which are judged."""
    for path in sweep.folder.glob("reference-*"):
        if path != sweep.reference(launch) and not (path / KEPT).exists():
            shutil.rmtree(path, ignore_errors=True)


def failed(launch: Launch, failure: LaunchFailed) -> dict[str, Any]:
    return {
        "launch": launch.number,
        "topology": launch.topology,
        "recompute": launch.recompute,
        "bf16": launch.bf16,
        "failed": str(failure),
    }


def is_alarm(entry: dict[str, Any]) -> bool:
    """Whether a clean iteration was blamed, or left undecided."""
    decided = entry.get("verdict") != "inconclusive"
    return entry["kind"] == "clean" and (bool(entry["culprits"]) or not decided)


def count(line: dict[str, Any], kind: str) -> int:
    return sum(entry["kind"] == kind for entry in line.get("experiments", ()))


def say(line: dict[str, Any], total: int, wanted: int) -> None:
    if "failed" in line:
        print(f"launch {line['launch']} failed: {line['failed'].splitlines()[0]}", flush=True)
        return
    mutants = [entry for entry in line["experiments"] if entry["kind"] == "mutant"]
    alarms = [e for e in line["experiments"] if e["kind"] == "clean" and e["culprits"]]
    print(
        f"launch {line['launch']} ({line['topology']}, {'bf16' if line['bf16'] else 'fp32'}, "
        f"{line['seconds']} s): {sum(e['detected'] for e in mutants)} of {len(mutants)} mutants, "
        f"{len(alarms)} false alarms of {count(line, 'clean')}; {total} of {wanted} mutants so far",
        flush=True,
    )


class Results:
    """The lines of a seed's results.jsonl, by launch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        seed = int(path.parent.name.partition("-")[2])
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) | {"seed": seed} for line in text.splitlines()]
        self.by_launch = {line["launch"]: line for line in lines}

    def add(self, line: dict[str, Any], wanted: int) -> None:
        self.by_launch[line["launch"]] = line
        with self.path.open("a") as out:
            out.write(json.dumps(line) + "\n")
        say(line, self.mutants(), wanted)

    def mutants(self) -> int:
        return sum(count(line, "mutant") for line in self.by_launch.values())


def write_all() -> None:
    found = [Results(path) for path in OUT.glob(f"seed-*/{RESULTS}")]
    lines = [line for results in found for line in results.by_launch.values()]
    write_table(TABLE, sorted(lines, key=lambda line: (line["seed"], line["launch"])), "make sweep")


def run_one(sweep: Sweep, options: argparse.Namespace) -> int:
    launch = plan(options.seed, options.only, options.iterations, options.clean)
    started = time.monotonic()
    record_reference(sweep, launch)
    record_candidate(sweep, launch)
    line = finish(sweep, launch, started, options.keep)
    print(json.dumps(line, indent=1))
    return 0


def run_all(sweep: Sweep, options: argparse.Namespace, results: Results) -> None:
    """Checks run beside the next launch: most of a launch is waiting for processes to start."""
    number, failures = options.first, 0
    last = time.monotonic() + 60 * options.minutes
    pending: Future | None = None
    with ThreadPoolExecutor(1) as checker:
        while results.mutants() < options.mutants and time.monotonic() < last:
            if number not in results.by_launch:
                launch = plan(options.seed, number, options.iterations, options.clean)
                started = time.monotonic()
                try:
                    record_reference(sweep, launch)
                    record_candidate(sweep, launch)
                except LaunchFailed as failure:
                    results.add(failed(launch, failure), options.mutants)
                    failures += 1
                    if failures == FAILURES_IN_A_ROW:
                        text = f"{failures} launches failed, the last: {failure}"
                        raise SystemExit(text) from failure
                else:
                    failures = 0
                    if pending is not None:
                        results.add(pending.result(), options.mutants)
                    if not options.keep:
                        forget_references(sweep, launch)
                    pending = checker.submit(finish, sweep, launch, started, options.keep)
            number += 1
        if pending is not None:
            results.add(pending.result(), options.mutants)


def judge_again(sweep: Sweep, options: argparse.Namespace, results: Results) -> None:
    """A changed judge on the traces that were kept. What has none stays as it is."""
    lines = list(results.by_launch.values())
    results.path.replace(results.path.with_suffix(".before"))
    results.by_launch.clear()
    for line in lines:
        launch = plan(options.seed, line["launch"], options.iterations, options.clean)
        if "failed" not in line and sweep.candidate(launch).exists():
            line = finish(sweep, launch, time.monotonic(), keep=True)
        results.add(line, options.mutants)


def main() -> int:
    options = parse_arguments()
    folder = OUT / f"seed-{options.seed}"
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(
        folder,
        options.iterations,
        options.reference_legs,
        options.candidate_legs,
        options.timeout,
    )
    with rank_server.serving():
        return run(sweep, options)


def run(sweep: Sweep, options: argparse.Namespace) -> int:
    if options.only is not None:
        return run_one(sweep, options)
    results = Results(sweep.folder / RESULTS)
    if options.again:
        judge_again(sweep, options, results)
    elif not options.table:
        run_all(sweep, options, results)
    write_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
