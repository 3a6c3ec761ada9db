#!/usr/bin/env python3
"""Compares plain loops twice, all legs in one launch and with one launch for each leg, and writes
docs/evidence/reruns.md: launches, seconds, and whether the verdicts, places and classes are the
same.

    scripts/reruns.py                 all rows
    scripts/reruns.py styles nanogpt  rows whose group or name contains one of these
    scripts/reruns.py --missing       those that have no row yet
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in ("tests", "zoo/loop_styles"):
    sys.path.insert(0, str(ROOT / folder))

from styles import STYLES  # noqa: E402

import loops  # noqa: E402
from launch_ranks import launcher  # noqa: E402
from row_table import RowTable  # noqa: E402

TABLE = ROOT / "docs/evidence/reruns.md"
LEGS = ("--reference-legs", "replay,noise:2,isolated.noise:1", "--legs", "replay,isolated")
# Styles that have a bug of their own.
PLANTED = ("accumulated", "several-forwards", "in-place", "autocast")

HEADER = """# Reruns in place, and as launches

Written by `scripts/reruns.py`. Each row is one `ttrace diff` of a plain loop that is made twice: as
it is, and with `--launch-per-leg`. The reference has four legs (a replay, two with noise, one of
isolated modules), the candidate two. Launches and seconds are those of both runs with all legs, on
two cores of a shared machine, so that their ratio is what tells. "Same" holds verdict, first place,
role and classes against each other. What could not be run again says why, and is launched.

"""
COLUMNS = ("loop", "verdict", "same", "launches", "per leg", "seconds", "per leg", "why launched")


@dataclass(frozen=True)
class Row:
    name: str
    reference: str
    candidate: str


def command(ranks: int, *words: str) -> str:
    return shlex.join([*([sys.executable] if ranks == 1 else launcher(ranks)), *words])


def rows() -> list[Row]:
    script = "zoo/loop_styles/styles.py"
    found = []
    for style in STYLES:
        reference = command(1, script, style)
        found.append(Row(f"styles: {style}", reference, command(2, script, style)))
        if style in PLANTED:
            name = f"styles: {style}, with a bug"
            found.append(Row(name, reference, command(2, script, style, "--bug")))
    for loop in loops.LOOPS:
        path = f"zoo/loops/{loop.script}.py"
        few, many = loop.ranks
        reference = command(few, path, *loop.reference.split())
        found.append(Row(loop.name, reference, command(many, path, *loop.candidate.split())))
        faulty = ("zoo/loops/with_bug.py", loop.bug, path, *loop.candidate.split())
        found.append(Row(f"{loop.name}, with a bug", reference, command(many, *faulty)))
    return found


def diff(row: Row, out: Path, *options: str) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ttrace._cli", "diff", "-o", str(out), "--no-first-step", *LEGS,
         "--reference", row.reference, "--candidate", row.candidate, *options],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    seconds = time.monotonic() - begin
    more = map(int, re.findall(r"the command is launched (\d+) more time", done.stderr))
    why = re.findall(r"not run again in place \((.*?)\), so", done.stderr)
    found = out / "result.json"
    result = json.loads(found.read_text()) if found.exists() else {"verdict": "none"}
    first = next(iter(result.get("culprits", ())), None)
    said = [result["verdict"]]
    if first is not None:
        letters = sorted(c["class"] for c in first["classes"])
        said += [first["fqn"], first["role"], first["stage"], *letters]
    return {"said": said, "launches": 2 + sum(more), "seconds": seconds, "why": why}


def measure(row: Row, folder: Path) -> tuple[list[str], bool]:
    here, apart = diff(row, folder / "here"), diff(row, folder / "apart", "--launch-per-leg")
    same = here["said"] == apart["said"]
    verdict = " ".join(here["said"])
    if not same:
        verdict += f" / {' '.join(apart['said'])}"
    why = here["why"][0][:160] if here["why"] else "-"
    cells = [
        row.name, verdict, "yes" if same else "no", str(here["launches"]), str(apart["launches"]),
        f"{here['seconds']:.0f}", f"{apart['seconds']:.0f}", why,
    ]  # fmt: skip
    return cells, same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="rows whose name contains one of these")
    parser.add_argument("--missing", action="store_true", help="only those that have no row yet")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no row after so long")
    options = parser.parse_args()
    table = RowTable(TABLE, HEADER, COLUMNS, [row.name for row in rows()])
    until = time.monotonic() + 60 * options.minutes
    differing = []
    for row in rows():
        wanted = options.names or [""]
        if not any(word.lower() in row.name.lower() for word in wanted):
            continue
        if (options.missing and row.name in table.rows) or time.monotonic() > until:
            continue
        with tempfile.TemporaryDirectory(prefix="ttrace-reruns-") as folder:
            cells, same = measure(row, Path(folder))
        table.set(cells)
        print(" | ".join(cells), flush=True)
        if not same:
            differing.append(row.name)
    print(f"reruns: not the same: {', '.join(differing)}" if differing else "reruns: ok")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
