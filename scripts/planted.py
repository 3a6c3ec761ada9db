#!/usr/bin/env python3
"""Runs the zoo's planted faults and writes docs/evidence/planted.md.

    .venv/bin/python scripts/planted.py             # all; half an hour on two cores
    .venv/bin/python scripts/planted.py --only 'PL1$'  # rows by a regular expression
    .venv/bin/python scripts/planted.py --missing   # those that have no row yet
    .venv/bin/python scripts/planted.py --keep  # traces stay in planted/, for judged_again.py

What must be said of each is in its file in zoo/planted/.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import rank_server  # noqa: E402
import runs  # noqa: E402
from cases import bug_catalog  # noqa: E402

TABLE = ROOT / "docs/evidence/planted.md"
HEADER = """# Faults planted by mechanism

Written by `scripts/planted.py`: `zoo/train_gpt.py`, two iterations of one process as the reference,
and as the candidate the same with the options and the fault of the row. The faults are those of
`zoo/planted/`, which [the zoo](../../zoo/README.md#planted-faults) lists with what they do to the
loss. "As expected" is `EXPECT` of the fault's file: place, direction, stage, iteration and first
class, and that nobody else is blamed. Headroom is error / bound of the tensor that shows it. No
class is expected where nothing that is recorded tells it:

* **PL8, PL9**: the experts' bias is neither a parameter nor recorded. Its router is the first that
  uses it, one iteration later.
* **PL10**: what the auxiliary loss adds to a router's gradient has no record of its own.

"""
COLUMNS = (
    "fault",
    "options",
    "processes",
    "as expected",
    "verdict",
    "first culprit",
    "direction, stage",
    "class",
    "headroom",
    "evidence",
)
STEPS = ["--steps", "2"]


def short(text: str) -> str:
    return text[:200].replace("|", "/") or "-"


def said_of(outcome: runs.Outcome, bug: ModuleType) -> tuple[list[str], str]:
    """Cells from the verdict on, and what is not as it should be."""
    result = outcome.result
    if not result:
        return ["none", "-", "-", "-", "-", "-"], f"exit {outcome.code}"
    wrong = "; ".join(bug_catalog.disagreements(result, bug.EXPECT))
    if not result.get("culprits"):
        return [result["verdict"], "-", "-", "-", "-", short(result.get("reason", ""))], wrong
    first = result["culprits"][0]
    others = len(result["culprits"]) - 1
    classes = first["classes"]
    cells = [
        result["verdict"],
        f"`{first['fqn'] or 'the model'}`" + (f" and {others} more" if others else ""),
        f"{first['direction']}, {first['stage']}, iteration {first['iteration']}",
        " ".join(found["class"] for found in classes) or "-",
        f"{float(first['headroom']):.2g}",
        short(classes[0]["evidence"] if classes else ""),
    ]
    return cells, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of faults")
    parser.add_argument("--missing", action="store_true", help="only rows that are not there yet")
    parser.add_argument("--keep", action="store_true", help="do not delete traces")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    with rank_server.serving():
        return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    bugs = {bug.ID: bug for bug in map(bug_catalog.load, bug_catalog.planted())}
    table = RowTable(TABLE, HEADER, COLUMNS, bugs)
    wanted = [
        bug
        for name, bug in bugs.items()
        if re.match(options.only, name) and not (options.missing and name in table.rows)
    ]
    # One reference at a time: faults with equal ones follow each other.
    wanted.sort(key=bug_catalog.reference_flags)
    bad = []
    work = ROOT / "planted" if options.keep else Path(tempfile.mkdtemp(prefix="ttrace-planted-"))
    work.mkdir(exist_ok=True)
    recorded, reference = None, None
    for bug in wanted:
        shared = bug_catalog.reference_flags(bug)
        if recorded != shared:
            if reference and not options.keep:
                shutil.rmtree(reference, ignore_errors=True)
            reference = work / f"reference-{bug.ID}"
            shutil.rmtree(reference, ignore_errors=True)
            command = runs.launch(1, "train_gpt.py", *STEPS, *shared)
            made = runs.record_reference(reference, command)
            if made.code != 0:
                print(f"{bug.ID}: the reference failed\n{made.text}", file=sys.stderr)
                return 2
            recorded = shared
        command = runs.launch(bug.NPROC, "train_gpt.py", *STEPS, *bug.FLAGS, "--bug", bug.ID)
        folder = work / bug.ID
        outcome = runs.diff(folder, reference, command, "--force")
        if options.keep:
            (folder / "reference").unlink(missing_ok=True)
            (folder / "reference").symlink_to(Path("..") / reference.name)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        cells, wrong = said_of(outcome, bug)
        flags = " ".join(bug.FLAGS).replace("--", "") or "-"
        row = [bug.ID, flags, str(bug.NPROC), f"NO: {wrong}" if wrong else "yes", *cells]
        table.set(row)
        print(" | ".join(row), flush=True)
        if wrong:
            bad.append(bug.ID)
            print(outcome.text, flush=True)
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    print(f"planted: not as expected: {'; '.join(bad)}" if bad else "planted: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
