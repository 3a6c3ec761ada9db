"""A pytest plugin: leaves out what has passed before with the same project, and makes a table.

Results are appended to matrix/results.tsv as they come. They count for the project whose digest
scripts/setup_python.sh left in .venv/.project, and for the same tests.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "matrix" / "results.tsv"
TABLE = ROOT / "docs" / "matrix.md"


def _digest() -> str:
    digest = hashlib.sha256((ROOT / ".venv" / ".project").read_bytes())
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("zoo/**/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _results() -> dict[str, tuple[str, float]]:
    """The last outcome and seconds of each test, by its id, for this project."""
    found: dict[str, tuple[str, float]] = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            digest, outcome, seconds, test = line.split("\t")
            if digest == _DIGEST:
                found[test] = (outcome, float(seconds))
    return found


_DIGEST = _digest()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = {test for test, (outcome, _) in _results().items() if outcome == "passed"}
    again = [item for item in items if item.nodeid in passed]
    config.hook.pytest_deselected(items=again)
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(f"{_DIGEST}\t{report.outcome}\t{report.duration:.1f}\t{report.nodeid}\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    rows = [
        f"| {test.split('::', 1)[1]} | {outcome} | {seconds:.0f} |"
        for test, (outcome, seconds) in sorted(_results().items())
        if "test_case[" in test or "test_zoo" in test
    ]
    TABLE.write_text(
        "# The matrix\n\nWhat the last `make matrix` ran, on real training runs.\n\n"
        "| run | outcome | seconds |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )
