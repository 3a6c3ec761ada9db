#!/usr/bin/env python3
"""Plants faults by mechanism in plain loops, compares each twice, with all legs in one launch and
with a launch for each, and writes docs/evidence/loop_mutants.md.

    scripts/loop_mutants.py --mutants 100       until so many have changed something
    scripts/loop_mutants.py --seed 2            others; the table counts those of all seeds
    scripts/loop_mutants.py --only 17 --keep    one again, with its traces, its result printed
    scripts/loop_mutants.py --honest            the loops themselves, without a fault
    scripts/loop_mutants.py --missing           honest loops and mutants that have no result yet
    scripts/loop_mutants.py --table             only write the table

Resumable: results are kept in loop_mutants/ (--fresh: forget those of this seed). A mutant follows
from its seed and number alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
import rank_server  # noqa: E402
from loop_mutation import launch  # noqa: E402
from loop_mutation.outcome import judged, said, same  # noqa: E402
from loop_mutation.plan import KINDS, Experiment, experiment, honest  # noqa: E402
from loop_mutation.table import write_table  # noqa: E402

OUT = ROOT / "loop_mutants"
TABLE = ROOT / "docs/evidence/loop_mutants.md"
WAYS = (launch.HERE, launch.APART)


def measure(one: Experiment, folder: Path, keep: bool) -> dict[str, Any]:
    line: dict[str, Any] = {"seed": one.seed, "number": one.number, "kind": one.kind.name}
    places: list[str] = []
    try:
        if one.mutant is not None:
            line["mutant"] = asdict(one.mutant)
            line["relative"] = launch.relative_change(one, folder)
            line["blamed"] = places = launch.blamed(one, folder)
            if not line["relative"]:
                return line
        with ThreadPoolExecutor(len(WAYS)) as both:
            made = list(both.map(lambda way: launch.diff(one, folder, way, keep), WAYS))
    except launch.LaunchFailed as failure:
        return {**line, "failed": str(failure)}
    for way, (result, seconds, text) in zip(WAYS, made, strict=True):
        outcome = said(result)
        line[way] = {**outcome, **judged(one.mutant, places, outcome), "seconds": round(seconds, 1)}
        if way == launch.HERE:
            line["why_launched"] = launched(text)
    line["differing"] = same(line[launch.HERE], line[launch.APART])
    return line


def launched(text: str) -> str:
    """Why not all legs were made in place; empty: they were."""
    _, found, rest = text.partition("not run again in place (")
    return rest.partition("), so")[0][:300] if found else ""


class Results:
    """Of all seeds, by seed and number; honest loops are those of seed 0."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        self.lines = {(line["seed"], line["number"]): line for line in lines}

    def add(self, line: dict[str, Any]) -> None:
        self.lines[line["seed"], line["number"]] = line
        with self._path.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def forget(self, seed: int) -> None:
        self.lines = {key: line for key, line in self.lines.items() if key[0] != seed}
        self._path.write_text("".join(json.dumps(line) + "\n" for line in self.lines.values()))

    def mutants(self, seed: int) -> int:
        """Those that changed something."""
        return sum(key[0] == seed and "here" in line for key, line in self.lines.items())


def say(line: dict[str, Any]) -> None:
    name = line["mutant"]["name"] if "mutant" in line else "honest"
    head = f"{line['seed']}:{line['number']} {name} ({line['kind']})"
    if "failed" in line:
        print(f"{head}: failed: {line['failed']}", flush=True)
    elif "here" not in line:
        print(f"{head}: changes nothing", flush=True)
    else:
        here = line["here"]
        words = [here["verdict"], *(str(here.get(key, "")) for key in ("fqn", "role", "letters"))]
        right = [
            f"{key} {here[key]}" for key in ("found", "place", "class", "accused") if key in here
        ]
        unlike = f", apart: {', '.join(line['differing'])}" if line["differing"] else ""
        print(f"{head}: {' '.join(words)}: {', '.join(right)}{unlike}", flush=True)


def run(options: argparse.Namespace, results: Results) -> None:
    until = time.monotonic() + 60 * options.minutes
    if options.only is not None:
        line = measure(experiment(options.seed, options.only), OUT, options.keep)
        print(json.dumps(line, indent=1))
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        running: set[Future[dict[str, Any]]] = set()
        for one in wanted(options, results):
            while len(running) >= options.jobs:
                running = finish_one(running, results)
            enough = results.mutants(options.seed) >= options.mutants and one.mutant is not None
            if enough or time.monotonic() > until:
                break
            running.add(pool.submit(measure, one, OUT, options.keep))
        while running:
            running = finish_one(running, results)


def wanted(options: argparse.Namespace, results: Results) -> Iterator[Experiment]:
    """Honest loops first, then mutants without an end."""
    if options.honest or options.missing:
        for kind in KINDS.values():
            one = honest(kind)
            if options.honest or (one.seed, one.number) not in results.lines:
                yield one
    for number in () if options.honest else itertools.count():
        if (options.seed, number) not in results.lines:
            yield experiment(options.seed, number)


def finish_one(running: set[Future[dict[str, Any]]], results: Results) -> set[Any]:
    done, rest = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        results.add(future.result())
        say(future.result())
    return rest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=100, help="how many must change something")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none later")
    parser.add_argument("--jobs", type=int, default=1, help="experiments at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this one alone; its result is printed, not kept")
    parser.add_argument("--honest", action="store_true", help="only the loops without a fault")
    parser.add_argument("--missing", action="store_true", help="all that has no result yet")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    parser.add_argument("--fresh", action="store_true", help="forget this seed's results")
    parser.add_argument("--keep", action="store_true", help="do not delete traces")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    results = Results(OUT / "results.jsonl")
    if options.fresh:
        results.forget(options.seed)
        for path in OUT.glob("reference-*"):
            shutil.rmtree(path)
        for path in OUT.glob("measured-*"):
            path.unlink()
    if not options.table:
        with rank_server.serving():
            run(options, results)
    if options.only is None:
        write_table(TABLE, list(results.lines.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
