#!/usr/bin/env python3
"""Test suites that use the fixture `ttrace`, each right and with its planted bug: which tests fail,
what the report names, and how long a comparison takes. Writes docs/evidence/suites.md.

    scripts/suite_table.py

Each suite is run by a pytest process of its own, twice. The machine should have nothing else to do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "evidence" / "suites.md"


@dataclass(frozen=True)
class Suite:
    """A file of zoo/suites, and what its planted bug is."""

    name: str
    bug: str
    test: str  # the one that finds it
    first: str  # where
    class_: str  # its letter; "": none is named


SUITES = (
    Suite(
        "tensor_parallel_block",
        "a packed projection is cut across its queries, keys and values",
        "test_packed_projection",
        "attention",
        "",
    ),
    Suite(
        "gradient_accumulation",
        "the loss is a mean of means over micro-batches of unequal tokens",
        "test_padded_rows",
        "loss",
        "L",
    ),
    Suite(
        "fused_optimizer",
        "one group for the fused kernel loses that biases have no weight decay",
        "test_fused",
        "0.bias",
        "H",
    ),
)


@dataclass(frozen=True)
class Case:
    """One test of a suite."""

    name: str
    seconds: float  # its comparison's, with all it starts
    passed: bool
    verdict: str
    reason: str
    first: str


def run(suite: Suite, planted: bool) -> list[Case]:
    """By pytest. Raises RuntimeError if it left no report."""
    environment = {k: v for k, v in os.environ.items() if k != "PLANTED"}
    environment |= {"OMP_NUM_THREADS": "1", **({"PLANTED": "1"} if planted else {})}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        words = ["-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        command = [sys.executable, "-m", "pytest", *words, f"--basetemp={folder}/tests"]
        command.append(f"zoo/suites/{suite.name}.py")
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(f"{suite.name}: pytest wrote no report\n{done.stdout}{done.stderr}")
        return [_case(case) for case in ET.parse(report).iter("testcase")]


def _case(case: ET.Element) -> Case:
    of_comparison = {one.get("name"): one.get("value", "") for one in case.iter("property")}
    found = (of_comparison.get(f"ttrace_{key}", "") for key in ("verdict", "reason", "first"))
    failed = any(case.find(word) is not None for word in ("failure", "error", "skipped"))
    return Case(case.get("name", ""), float(case.get("time", "nan")), not failed, *found)


def main() -> int:
    load = os.getloadavg()[0]
    rows, slowest = [], 0.0
    for suite in SUITES:
        for planted in (False, True):
            name = f"{suite.name}, with its bug" if planted else suite.name
            cases = run(suite, planted)
            slowest = max([slowest, *(case.seconds for case in cases[1:])])
            for case in cases:
                place = f"`{case.first}`" if case.first else ""
                what = suite.bug if planted and case.name == suite.test else ""
                rows.append(
                    f"| {name} | `{case.name}` | {what} | {case.verdict} | {place} "
                    f"| {'passed' if case.passed else 'failed'} | {case.seconds:.1f} |"
                )
    TABLE.write_text(
        f"""# Test suites with a planted bug

`scripts/suite_table.py` runs each file of `zoo/suites` by pytest, as it is and with its bug
(`PLANTED=1`). A row with a bug is that of the test that has to fail; all others have to pass.
Seconds are those of the test, on {os.cpu_count()} cores; the load was {load:.1f} when it began. The
first test of a file also starts the process that ranks are copies of, which imports torch. The
slowest of the others took {slowest:.1f} s.

| suite | test | bug | verdict | first | | seconds |
|---|---|---|---|---|---|---|
"""
        + "\n".join(rows)
        + "\n",
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
