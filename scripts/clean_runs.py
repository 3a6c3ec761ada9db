#!/usr/bin/env python3
"""Compares clean runs drawn at random with a reference that computes the same, and writes
docs/evidence/clean_runs.md: how often a clean run is flagged, and how near it comes to its bounds.

    scripts/clean_runs.py --half A --minutes 60   start nothing after so long; resumable
    scripts/clean_runs.py --half B --models 0:20  only the models of these numbers
    scripts/clean_runs.py --half A --only PP2     candidates whose shape contains this
    scripts/clean_runs.py --half A --list 5       only print what the first models are
    scripts/clean_runs.py --table                 only write the document

Half A is the development half: what it shows may change the judge. Half B differs in kind and is
run once the judge is frozen. Finished runs are kept in clean/results.jsonl (delete lines to run
them again), the traces of what was not within in clean/kept/.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from clean_table.launch import CommandFailed, judge, record, shown  # noqa: E402
from clean_table.plan import Candidate, Model, models  # noqa: E402
from clean_table.table import write_table  # noqa: E402

OUT = ROOT / "clean"
RESULTS = OUT / "results.jsonl"
KEPT = OUT / "kept"
TABLE = ROOT / "docs" / "evidence" / "clean_runs.md"
KEPT_BYTES = 1 << 30
CLEAN = ("within", "bitwise_equal")


def keep(model: Model, number: int, folder: Path, line: dict[str, Any]) -> None:
    """Puts the traces aside of what is no pass, unless too much is there already."""
    used, size = bytes_in(KEPT), bytes_in(folder)
    place = KEPT / f"{model.name}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    if used + size > KEPT_BYTES:
        print(f"  not kept: {KEPT} holds {used >> 20} MiB", flush=True)
        return
    place.mkdir(parents=True)
    shutil.copytree(folder / "reference", place / "reference", copy_function=os.link)
    shutil.move(folder / "candidate", place / "candidate")
    for log in folder.glob("*.log"):
        shutil.copy(log, place)
    path = place.relative_to(ROOT)
    line["kept"] = f"ttrace check {path}/reference {path}/candidate"
    print(f"  {line['kept']}", flush=True)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def identity(model: Model, candidate: Candidate) -> dict[str, Any]:
    return {
        "half": model.half,
        "model": model.number,
        "shape": candidate.shape,
        "reference": shown(model.reference),
        "candidate": shown(candidate.command),
        "iterations": list(model.iterations),
    }


def read_results() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )


class Runs:
    """The results so far, and what is still to be run."""

    def __init__(self, only: str, most: int, deadline: float) -> None:
        self.done = read_results()
        self._only, self._most, self._deadline = only, most, deadline

    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def compare(self, model: Model) -> None:
        """Runs candidates of a model until as many as it wants are judged."""
        known = {
            (line["reference"], line["candidate"]): line["verdict"]
            for line in self.done
            if (line["half"], line["model"]) == (model.half, model.number)
        }
        if (shown(model.reference), "") in known:
            return  # the trainer refused the reference
        verdicts = [
            known.get((shown(model.reference), shown(candidate.command)))
            for candidate in model.candidates
        ]
        judged = sum(verdict not in (None, "refused") for verdict in verdicts)
        folder = OUT / model.name
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
        for number, candidate in enumerate(model.candidates):
            wanted = self._only in candidate.shape and verdicts[number] is None
            if judged >= min(model.wanted, self._most) or not wanted or self.late():
                continue
            if not folder.exists() and not self._record_reference(model, folder):
                return
            line = identity(model, candidate) | judge(model, candidate, folder)
            judged += line["verdict"] != "refused"
            print(said(model, candidate, line), flush=True)
            if line["verdict"] not in (*CLEAN, "refused"):
                keep(model, number, folder, line)
            self._add(line)
            shutil.rmtree(folder / "candidate", ignore_errors=True)
            shutil.rmtree(folder / "report", ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)

    def _record_reference(self, model: Model, folder: Path) -> bool:
        folder.mkdir(parents=True)
        # Masks of two topologies cannot be equal; --graft switches dropout off too.
        how = ["--as-reference", "--dropout", "off"]
        try:
            record(model, model.reference, folder / "reference", folder / "reference.log", how)
        except CommandFailed as failure:
            print(f"{model.name} reference: {failure.verdict}, {failure}", flush=True)
            self._add(
                identity(model, Candidate("reference", model.reference))
                | {"candidate": "", "verdict": failure.verdict, "reason": str(failure)}
            )
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def _add(self, line: dict[str, Any]) -> None:
        self.done.append(line)
        with RESULTS.open("a") as out:
            out.write(json.dumps(line) + "\n")


def said(model: Model, candidate: Candidate, line: dict[str, Any]) -> str:
    text = f"{model.name} {candidate.shape}: {line['verdict']}"
    largest = line.get("largest")
    if largest:
        text += (
            f", {line['tests']} tests, headroom {largest['headroom']:.2f} ({largest['tensor']} "
            f"{largest['role']}, {largest['leg']} {largest['statistic']}), "
            f"{line['seconds']:.0f} + {line['check_seconds']:.0f} s"
        )
    return text if line["verdict"] in CLEAN else f"{text}\n  {line['reason']}"


def span(text: str) -> tuple[int, float]:
    first, _, end = text.partition(":")
    return int(first), int(end) if end else math.inf


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("A", "B"))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--models", type=span, default=(0, math.inf), metavar="FIRST:END")
    parser.add_argument("--candidates", type=int, default=99, help="at most so many of a model")
    parser.add_argument("--only", default="", help="candidates whose shape contains this")
    parser.add_argument("--list", type=int, metavar="N", help="print the first models, run nothing")
    parser.add_argument("--table", action="store_true", help="only write the document")
    options = parser.parse_args()
    if not options.table and not options.half:
        parser.error("--half or --table")
    OUT.mkdir(exist_ok=True)
    KEPT.mkdir(exist_ok=True)
    runs = Runs(options.only, options.candidates, time.monotonic() + 60 * options.minutes)
    first, end = options.models
    for number, model in enumerate(() if options.table else models(options.half, end)):
        if options.list is not None:
            if number >= options.list:
                return 0
            show(model)
            continue
        if runs.late():
            break
        if model.number >= first:
            runs.compare(model)
    write_table(TABLE, *planned(runs.done))
    return 0


def planned(lines: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of runs that are drawn today, and of others: what was found to be a fault of the
    library is left out of the space from then on."""
    drawn = set()
    for half in {line["half"] for line in lines}:
        last = max(line["model"] for line in lines if line["half"] == half)
        for model in models(half, last + 1):
            drawn |= {(shown(model.reference), shown(c.command)) for c in model.candidates}
            drawn.add((shown(model.reference), ""))
    today = [(line["reference"], line["candidate"]) in drawn for line in lines]
    return (
        [line for line, is_drawn in zip(lines, today, strict=True) if is_drawn],
        [line for line, is_drawn in zip(lines, today, strict=True) if not is_drawn],
    )


def show(model: Model) -> None:
    print(f"{model.name}: {shown(model.reference)}")
    for candidate in model.candidates[: model.wanted]:
        own = [f for f in candidate.command.flags if f not in model.reference.flags]
        print(f"  {candidate.shape}: {shlex.join(own)}")


if __name__ == "__main__":
    sys.exit(main())
