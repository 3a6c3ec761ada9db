#!/usr/bin/env python3
"""Judges kept traces by a build, and compares what two builds say: a change of the judge that is
meant to change no verdict is held against every run whose traces were kept.

    scripts/matrix.py --keep; scripts/planted.py --keep; scripts/sweep.py --seed 3 --keep
    scripts/judged_again.py judge before matrix planted sweep/seed-3 honest/kept
    ... the change, and a build ...
    scripts/judged_again.py judge after matrix planted sweep/seed-3 honest/kept
    scripts/judged_again.py compare before after --table docs/evidence/judged_again.md

A pair of traces is a folder with `reference` and `candidate`, or, of a sweep, with `reference` and
`trace`: of these each iteration is judged alone. What was said is kept in judged/NAME.jsonl, one
line a judgement; a pair that is there already is not judged again (--fresh: it is).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "judged"
TTRACE = Path(sys.executable).parent / "ttrace"

HEAD = """# The same traces, judged by two builds

Written by `scripts/judged_again.py compare`. Verdict, exit code, and of each culprit its iteration,
tensor, direction, stage, ranks and classes, in their order.
"""


@dataclass(frozen=True)
class Pair:
    reference: Path
    candidate: Path
    iteration: int | None = None  # alone; None: all of them

    @property
    def name(self) -> str:
        folder = self.candidate.parent.relative_to(ROOT)
        return str(folder) if self.iteration is None else f"{folder} iteration {self.iteration}"


def pairs(root: Path) -> Iterator[Pair]:
    for reference in sorted(root.rglob("reference")):
        folder = reference.parent
        if (folder / "candidate" / "manifest.json").exists():
            yield Pair(reference, folder / "candidate")
        elif (folder / "trace" / "manifest.json").exists():
            manifest = json.loads((folder / "trace" / "manifest.json").read_text())
            for iteration in range(*manifest["iterations"]):
                yield Pair(reference, folder / "trace", iteration)


def judged(pair: Pair, ttrace: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ttrace-judged-") as work:
        words = [ttrace, "check", pair.reference, pair.candidate, "-o", f"{work}/report"]
        if pair.iteration is not None:
            words += ["--iterations", f"{pair.iteration}:{pair.iteration + 1}"]
        done = subprocess.run(
            [str(word) for word in words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        found = Path(work) / "report" / "result.json"
        result = json.loads(found.read_text()) if found.exists() else {}
    return {
        "pair": pair.name,
        "exit": done.returncode,
        "verdict": result.get("verdict", "refused"),
        "culprits": [said(culprit) for culprit in result.get("culprits", ())],
        "contested": [said(culprit) for culprit in result.get("contested", ())],
    }


def said(culprit: dict[str, Any]) -> str:
    ranks = ",".join(map(str, culprit.get("ranks", ())))
    classes = " ".join(one["class"] for one in culprit["classes"]) or "no class"
    name = f"{culprit['fqn']} {culprit['role']}".strip()
    return (
        f"{name}, iteration {culprit['iteration']}, {culprit['direction']}, {culprit['stage']}, "
        f"ranks {ranks or 'all'}, {classes}"
    )


def judge(name: str, folders: list[Path], ttrace: Path, jobs: int, fresh: bool) -> int:
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.jsonl"
    done = {} if fresh else read(path)
    found = [pair for folder in folders for pair in pairs(folder.resolve())]
    if not found:
        sys.exit("judged_again: no folder with a reference and a candidate")
    wanted = [pair for pair in found if pair.name not in done]
    with path.open("w" if fresh else "a") as out, ThreadPoolExecutor(jobs) as pool:
        for number, line in enumerate(pool.map(lambda pair: judged(pair, ttrace), wanted), 1):
            out.write(json.dumps(line) + "\n")
            out.flush()
            if number % 50 == 0 or number == len(wanted):
                print(f"{number} of {len(wanted)}", flush=True)
    return 0


def read(path: Path) -> dict[str, dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["pair"]: line for line in map(json.loads, lines)}


def table(before: dict, after: dict, reasons: dict[str, str]) -> tuple[list[str], list[str]]:
    """The lines of the document, and the names of what changed without a reason or is on one side
    alone."""
    both = [name for name in before if name in after]
    kinds = {name: name.split("/")[0] for name in {*before, *after}}
    changed = [name for name in both if before[name] != after[name]]
    lonely = sorted(set(before) ^ set(after))
    text = ["", "| kept of | judged by both | the same | changed |", "|---|---|---|---|"]
    for kind in sorted(set(kinds.values())):
        of_kind = [name for name in both if kinds[name] == kind]
        moved = sum(kinds[name] == kind for name in changed)
        text.append(f"| {kind} | {len(of_kind)} | {len(of_kind) - moved} | {moved} |")
    verdicts = Counter(after[name]["verdict"] for name in both)
    text += ["", "Verdicts: " + ", ".join(f"{n} {kind}" for kind, n in sorted(verdicts.items()))]
    if changed:
        text += ["", "| run | before | after | because |", "|---|---|---|---|"]
    for name in changed:
        cells = (name, words(before[name]), words(after[name]), reasons.get(name, "?"))
        text.append(f"| {' | '.join(cells)} |")
    changed = [name for name in changed if name not in reasons]
    if lonely:
        text += ["", f"Judged by one build alone: {', '.join(lonely)}."]
    return text, changed + lonely


def words(line: dict[str, Any]) -> str:
    parts = [f"{line['verdict']} (exit {line['exit']})", *line["culprits"]]
    parts += [f"contested: {culprit}" for culprit in line["contested"]]
    return "; ".join(parts).replace("|", "/")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="judge kept traces")
    judging.add_argument("name", help="of what is written, judged/NAME.jsonl")
    judging.add_argument("folders", nargs="+", type=Path)
    judging.add_argument("--ttrace", type=Path, default=TTRACE, help="the build that judges")
    judging.add_argument("--jobs", type=int, default=2)
    judging.add_argument("--fresh", action="store_true", help="judge again what is there already")
    comparing = commands.add_parser(
        "compare", help="compare what two builds said; exit 1: changed without a reason"
    )
    comparing.add_argument("before")
    comparing.add_argument("after")
    comparing.add_argument("--table", type=Path, help="write a document")
    comparing.add_argument(
        "--because",
        nargs=2,
        action="append",
        default=[],
        metavar=("RUN", "WORDS"),
        help="why the judgement of RUN is meant to change",
    )
    options = parser.parse_args()
    if options.command == "judge":
        return judge(options.name, options.folders, options.ttrace, options.jobs, options.fresh)
    sides = [read(OUT / f"{name}.jsonl") for name in (options.before, options.after)]
    for name, side in zip((options.before, options.after), sides, strict=True):
        if not side:
            sys.exit(f"judged_again: judged/{name}.jsonl has no judgement")
    text, changed = table(*sides, dict(options.because))
    print("\n".join(text))
    if options.table:
        options.table.write_text("\n".join([HEAD.rstrip(), *text]) + "\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
