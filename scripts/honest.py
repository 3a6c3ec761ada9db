#!/usr/bin/env python3
"""Compares honest training loops, drawn at random, with the same on one rank, and writes
docs/evidence/honest.md: how many are accused, how many are left open, and which faults in them are
found.

    scripts/honest.py --half A --minutes 60   start nothing after so long; resumable
    scripts/honest.py --half A --faults       the draws that have a fault, with it
    scripts/honest.py --half B --only graphs  only loops whose name contains this
    scripts/honest.py --again                 judge the kept traces by the judge of today
    scripts/honest.py --verify                hold all against one rank, in float64, without capture
    scripts/honest.py --draw 75 --seed 1      draw on to so many of each half, each verified, and
                                              give 20 of each half a fault
    scripts/honest.py --unchanged             whether 20 of them compute the same when recorded
    scripts/honest.py --table                 only write the document

Half A is the development half. Half B is held out: it is run once half A accuses nobody. Finished
runs are kept in honest/results.jsonl (delete lines to run them again), their traces in
honest/kept/.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from honest_table import draw as drawing  # noqa: E402
from honest_table import unchanged  # noqa: E402
from honest_table.draw import Draw  # noqa: E402
from honest_table.in_float64 import Agreement, compare  # noqa: E402
from honest_table.outcome import check, diff  # noqa: E402
from honest_table.table import write_table  # noqa: E402

OUT = ROOT / "honest"
RESULTS = OUT / "results.jsonl"
UNCHANGED = OUT / "unchanged.jsonl"
TABLE = ROOT / "docs/evidence/honest.md"
# Of each half: as many have a fault as can be looked at one by one.
FAULTS = 20


def agreement(draw: Draw, with_fault: bool = False) -> Agreement:
    return compare((1, draw.reference()), (draw.ranks, draw.candidate(with_fault)))


def verify(draws: list[Draw]) -> int:
    """How many draws are not what they claim."""
    bad = 0
    for draw in draws:
        honest = agreement(draw)
        fault = agreement(draw, with_fault=True) if draw.fault else None
        wrong = "" if honest.holds else f"not honest: {honest.difference:.1e} {honest.problem}"
        if fault and fault.holds:
            wrong = f"{draw.fault} is no fault of it"
        bad += bool(wrong)
        print(f"{draw.name} {draw.kind}: {wrong or 'ok'}", flush=True)
    return bad


def draw_on(count: int, seed: int, half: str) -> None:
    """Draws until the frozen list has so many of a half; what it has stays, but for which have a
    fault. A draw that does not agree with one rank is dropped."""
    kept = drawing.read() if drawing.DRAWS.exists() else []
    number = sum(draw.half == half for draw in kept)
    for drawn in drawing.draws(half, f"{seed} {number}"):
        if number >= count:
            break
        draw = dataclasses.replace(drawn, number=number)
        honest = agreement(draw)
        if not honest.holds:
            why = honest.problem or f"{honest.difference:.1e}"
            print(f"dropped: {draw.kind}, {draw.options()}: {why}", flush=True)
            continue
        kept.append(draw)
        drawing.write(kept)
        print(f"{draw.name} {draw.kind}, {draw.options()}", flush=True)
        number += 1
    own = [draw for draw in kept if draw.half == half]
    others = [draw for draw in kept if draw.half != half]
    drawing.write(others + drawing.spread(own, FAULTS, is_fault))


def is_fault(draw: Draw) -> bool:
    found = agreement(draw, with_fault=True)
    is_one = not found.holds and not found.problem
    print(f"{draw.name} {draw.kind} {draw.fault}: {'a' if is_one else 'no'} fault", flush=True)
    return is_one


def read_lines(path: Path) -> list[dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def run(draws: list[Draw], with_faults: bool, deadline: float) -> None:
    known = {(line["name"], line["fault"]) for line in read_lines(RESULTS)}
    for draw in draws:
        fault = draw.fault if with_faults else ""
        if (draw.name, fault) in known or (with_faults and not fault):
            continue
        if time.monotonic() > deadline:
            return
        folder = kept_in(draw.name, fault)
        line = {"name": draw.name, "fault": fault, **diff(folder, draw, with_faults, None)}
        with RESULTS.open("a") as out:
            out.write(json.dumps(line) + "\n")
        why = f": {line['reason']}" if line["verdict"] != "within" else ""
        print(f"{draw.name} {draw.kind} {fault} {line['verdict']}{why}", flush=True)


def kept_in(name: str, fault: str) -> Path:
    """The folder of its traces and report."""
    return OUT / "kept" / (f"{name}-{fault}" if fault else name)


def judge_again() -> None:
    """What this build says of the traces that are kept. A crash of a candidate stays one."""
    lines = read_lines(RESULTS)
    for line in lines:
        folder = kept_in(line["name"], line["fault"])
        if line["verdict"] == "crashed" or not (folder / "candidate").exists():
            continue
        before = (line["verdict"], line.get("culprits"))
        line |= {"classes": [], "stage": "", "role": ""} | check(folder)
        if before != (line["verdict"], line.get("culprits")):
            print(f"{folder.name}: {line['verdict']}, before {before[0]}", flush=True)
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines))


def check_unchanged(draws: list[Draw]) -> int:
    """How many runs are changed by being recorded."""
    known = read_lines(UNCHANGED)
    OUT.mkdir(exist_ok=True)
    for draw in unchanged.chosen(draws):
        for ranks in unchanged.RANKS:
            if any((line["kind"], line["ranks"]) == (draw.kind, ranks) for line in known):
                continue
            found = unchanged.difference(draw, ranks, OUT / "recorded")
            line = {"kind": draw.kind, "ranks": ranks, "difference": found}
            with UNCHANGED.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(f"{draw.kind} on {ranks}: {found or 'the same'}", flush=True)
    return sum(bool(line["difference"]) for line in read_lines(UNCHANGED))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=drawing.HALVES)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--only", default="", help="loops whose name contains this")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--unchanged", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--draw", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="only write the document")
    options = parser.parse_args()
    if options.draw:
        for half in (options.half,) if options.half else drawing.HALVES:
            draw_on(options.draw, options.seed, half)
        return 0
    draws, changed = drawing.read(), 0
    chosen = [d for d in draws if options.half in (None, d.half) and options.only in d.kind]
    if options.verify:
        return 1 if verify(chosen) else 0
    if options.unchanged:
        changed = check_unchanged(draws)
    elif options.again:
        judge_again()
    elif not options.table:
        if not options.half:
            parser.error("--half, --again, --verify, --draw, --unchanged or --table")
        (OUT / "kept").mkdir(parents=True, exist_ok=True)
        run(chosen, options.faults, time.monotonic() + 60 * options.minutes)
    write_table(TABLE, draws, read_lines(RESULTS), read_lines(UNCHANGED))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
