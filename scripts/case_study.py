#!/usr/bin/env python3
"""Compares releases of megatron-core with themselves: options times topologies, no bug injected.

    .venv/bin/python scripts/case_study.py             # all; an hour on two cores
    .venv/bin/python scripts/case_study.py --missing   # those that have no row yet
    .venv/bin/python scripts/case_study.py --only '^0.16.1: mtp'  # by a regular expression

Writes docs/evidence/case_study_sweep.md, a row for each comparison, and from its rows the first
table of docs/case_study.md. What is not within and no entry of `case_study_plan.py` explains is
said to be so, and fails the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import case_study_summary
from case_study_plan import TOPOLOGIES, Cell, cells, explained
from row_table import RowTable
from versions import error_in, first_culprit, put_first

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import runs  # noqa: E402
from matrix import worst  # noqa: E402

DOCUMENT = ROOT / "docs/case_study.md"
TABLE = ROOT / "docs/evidence/case_study_sweep.md"
HEADER = """# The sweep of the case study

Written by `scripts/case_study.py`: `zoo/train_gpt.py` on releases of megatron-core, without a bug,
in fp32, one process as the reference. A run is a release, options of both sides (`OPTIONS` in
`scripts/case_study_plan.py`), a topology of the candidate (`TOPOLOGIES` there), and a correction of
`zoo/fixes/`. *Explained by* is a bug of [the case study](../case_study.md); `NOTHING` is what
nobody has explained. *Compared*: tensors. *Headroom*: error / bound of the worst tensor of the run
itself. What the plan has and this table has not was not run (`--missing` runs it).

"""
COLUMNS = ("run", "explained by", "verdict", "compared", "headroom", "first culprit", "said")
OTHER_FUNCTION = "the runs compute different functions"
CLEAN = ("within", "bitwise_equal")


def explanation(cell: Cell, verdict: str, said: str) -> str:
    """The key of a bug, or that there is none."""
    undecided = verdict == "inconclusive"
    if undecided and said.startswith(OTHER_FUNCTION):
        return "another function"
    if verdict in CLEAN or (undecided and "; 0 of " in said):
        return "-"
    bug = None if cell.fix else explained(cell.version, cell.place)
    return bug.key if bug else "NOTHING"


def out_of_bounds(text: str) -> str:
    """How many tensors are, of all that were judged: also where the verdict says less."""
    clean = re.search(r"^CLEAN(.*?)^ +closest", text, re.MULTILINE | re.DOTALL)
    counts = re.findall(r"(\d+)\s+of\s+(\d+)", clean[1]) if clean else []
    whole = sum(int(all_) for _, all_ in counts)
    return f"{whole - sum(int(fine) for fine, _ in counts)} of {whole} out of bounds"


def what_was_said(outcome: runs.Outcome) -> str:
    if outcome.code == 0:
        return "-"
    if outcome.result.get("verdict") == "diverged":
        return out_of_bounds(outcome.text)
    reason = error_in(outcome.text) or outcome.result.get("reason", "")
    reason = re.sub(r"\S*/run/candidate: ", "", reason)[:120].replace("|", "/").replace("\n", " ")
    return f"{reason}; {out_of_bounds(outcome.text)}" if outcome.result else reason


def row_of(cell: Cell, outcome: runs.Outcome) -> list[str]:
    result = outcome.result
    verdict, said = result.get("verdict", "none"), what_was_said(outcome)
    return [
        cell.name,
        explanation(cell, verdict, said),
        verdict,
        str(result.get("coverage", {}).get("compared", 0)),
        worst(result, "real"),
        first_culprit(result),
        said,
    ]


def compared(folder: Path, reference: Path, command: str) -> runs.Outcome:
    try:
        return runs.diff(folder, reference, command)
    except subprocess.TimeoutExpired as expired:
        text = f"TimeoutError: not over after {expired.timeout:.0f} s"
        return runs.Outcome(2, text, expired.timeout, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of names of rows")
    parser.add_argument("--missing", action="store_true", help="only rows that are not there yet")
    parser.add_argument("--keep", type=Path, help="folder for what was said of each run")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    planned = cells()
    table = RowTable(TABLE, HEADER, COLUMNS, [cell.name for cell in planned])
    chosen = [
        cell
        for cell in planned
        if re.search(options.only, cell.name) and not (options.missing and cell.name in table.rows)
    ]
    # The plan may explain since what it did not when the row was measured.
    for cell in planned:
        if cell.name in table.rows:
            row = table.rows[cell.name]
            row[1] = explanation(cell, row[2], row[6])
    work = Path(tempfile.mkdtemp(prefix="ttrace-case-study-"))
    # One reference after the other: each is some hundred megabytes.
    for (version, flags), same in groupby(
        sorted(chosen, key=lambda cell: (cell.version, cell.flags)),
        lambda cell: (cell.version, cell.flags),
    ):
        put_first(version)
        reference = work / "reference"
        alone = shlex.join([sys.executable, str(ROOT / "zoo/train_gpt.py"), *flags])
        recorded = runs.record_reference(reference, alone)
        for cell in same:
            if recorded.code == 0:
                processes, own = TOPOLOGIES[cell.topology]
                fixed = ("--fix", cell.fix) if cell.fix else ()
                command = runs.launch(processes, "train_gpt.py", *flags, *own, *fixed)
                outcome = compared(work / "run", reference, command)
            else:
                outcome = recorded
            row = row_of(cell, outcome)
            table.set(row)
            case_study_summary.write(DOCUMENT, table.rows)
            print(" | ".join(row), f"| {outcome.seconds:.0f} s", flush=True)
            if options.keep:
                name = re.sub(r"\W+", "_", cell.name)
                (options.keep / f"{name}.txt").write_text(outcome.text)
            shutil.rmtree(work / "run", ignore_errors=True)
        shutil.rmtree(reference, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)
    bad = [cell.name for cell in chosen if table.rows[cell.name][1] == "NOTHING"]
    print(f"case study: not explained: {'; '.join(bad)}" if bad else "case study: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
