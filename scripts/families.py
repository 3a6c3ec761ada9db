#!/usr/bin/env python3
"""Compares models of transformers on one rank and on two, and writes docs/evidence/families.md.

    scripts/families.sh                # all, after installing requirements-loops.txt
    scripts/families.sh bert mixtral   # some; the others' rows stay
    scripts/families.sh --missing      # those that have no row yet

No clean run may be called diverged, and every run with the fault has to be.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import runs  # noqa: E402
from matrix import worst  # noqa: E402

TABLE = ROOT / "docs/evidence/families.md"
SCRIPT = "loops/families.py"
# timesformer takes the class tokens of a batch from its first rows, whichever video they are of.
ROWS_DEPEND_ON_EACH_OTHER = ("timesformer",)

HEADER = """# Architectures that nobody here wrote

Written by `scripts/families.sh`, which `make matrix` runs too: models of transformers as pip
installs them, small and randomly initialised, in a plain loop (`zoo/loops/families.py`): one rank
as the reference, two data-parallel ranks as the candidate, two iterations, in fp32 and under
autocast in bfloat16. The fault: gradients are not averaged. Compared: tensors. Headroom is error /
bound of the worst tensor of the clean run itself. What is inconclusive says why: statistics over
the rows of a micro-batch and random numbers drawn inside of a model are another computation on two
ranks. timesformer is a finding about the model: it takes the class tokens of a batch from the first
rows, whichever video they are of, so that a gradient inside of its embeddings depends on how the
batch is cut.

"""
COLUMNS = ("model", "clean", "compared", "headroom", "why", "with the fault")


def command(ranks: int, family: str, autocast: bool, faulty: bool = False) -> str:
    script = ["loops/with_bug.py", "local_gradients", f"zoo/{SCRIPT}"] if faulty else [SCRIPT]
    return runs.launch(ranks, *script, family, *(["--autocast"] if autocast else []))


def first_place(outcome: runs.Outcome) -> str:
    if not outcome.result.get("culprits"):
        return outcome.result.get("verdict", f"exit {outcome.code}")
    first = outcome.first
    return f"`{first['fqn'] or 'the model'}`, {first['role']} ({' '.join(outcome.letters) or '-'})"


def cells_of(outcome: runs.Outcome) -> list[str]:
    """Verdict, tensors compared, headroom, and why it is no other verdict."""
    result = outcome.result
    verdict = result.get("verdict", f"exit {outcome.code}")
    why = "" if verdict in ("within", "bitwise_equal") else result.get("reason", "")
    compared = str(result.get("coverage", {}).get("compared", 0))
    return [verdict, compared, worst(result, "real"), why.partition(" (")[0][:120] or "-"]


def measure(name: str, folder: Path) -> tuple[list[str], bool, str]:
    """The row, whether it is as it should be, and what was said."""
    family, _, precision = name.partition(", ")
    autocast = bool(precision)
    recorded = runs.record_reference(folder / "reference", command(1, family, autocast))
    if recorded.code != 0:
        return [name, "no reference", "-", "-", "-", "-"], False, recorded.text
    clean = runs.diff(folder / "clean", folder / "reference", command(2, family, autocast))
    cells = [name, *cells_of(clean)]
    fine = cells[1] != "diverged" or family in ROWS_DEPEND_ON_EACH_OTHER
    said = clean.text
    found = "-"
    if not autocast:
        bug = runs.diff(folder / "bug", folder / "reference", command(2, family, False, True))
        found = first_place(bug)
        fine = fine and bug.result.get("verdict") == "diverged"
        said += bug.text
    return [*cells, found], fine and bool(clean.result), said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models whose name contains one of these")
    parser.add_argument("--missing", action="store_true", help="only those that have no row yet")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    listed = subprocess.run(
        [sys.executable, ROOT / "zoo" / SCRIPT, "--list"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [name for family in listed.stdout.split() for name in (family, f"{family}, autocast")]
    table = RowTable(TABLE, HEADER, COLUMNS, names)
    bad = []
    for name in names:
        if not any(word in name for word in options.names or [""]):
            continue
        if options.missing and name in table.rows:
            continue
        folder = Path(tempfile.mkdtemp(prefix="ttrace-family-"))
        row, fine, said = measure(name, folder)
        shutil.rmtree(folder, ignore_errors=True)
        table.set(row)
        print(" | ".join(row), "" if fine else "  <-- not as it should be", flush=True)
        if not fine:
            bad.append(name)
            print(said, flush=True)
    print(f"families: not as they should be: {'; '.join(bad)}" if bad else "families: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
