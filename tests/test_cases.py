"""Real runs, judged end to end: clean topologies are "within", each zoo bug is found, placed and
named. `make test` runs a representative half, `make matrix` everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cases import Case, all_cases, bug_catalog
from runs import Outcome, diff, record_reference

References = Callable[[Case], Path]


def _parameters() -> list:
    return [
        pytest.param(case, id=case.name, marks=() if case.quick else pytest.mark.matrix)
        for case in all_cases()
    ]


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    """Reference bundles, each recorded once in a session."""
    known: dict[str, Path] = {}

    def get(case: Case) -> Path:
        command = case.reference_command
        if command not in known:
            folder = tmp_path_factory.mktemp("reference") / "trace"
            outcome = record_reference(folder, command)
            assert outcome.code == 0, outcome.explain()
            known[command] = folder
        return known[command]

    return get


def expect_clean(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.explain()
    result = outcome.result
    assert result["verdict"] in ("within", "bitwise_equal")
    assert result["culprits"] == []
    coverage = result["coverage"]
    assert coverage["reference_only"] == 0
    assert coverage["candidate_only"] == 0
    assert coverage["compared"] > 50


def expect_bugs(outcome: Outcome, bugs: list) -> None:
    assert outcome.code == 1, outcome.explain()
    assert outcome.result["verdict"] == "diverged"
    first, expected = outcome.first, [bug.EXPECT for bug in bugs]
    wrong = bug_catalog.disagreements(outcome.result, *expected)
    assert not wrong, f"{'; '.join(wrong)}\n{outcome.explain()}"
    assert float(first["headroom"]) > 1
    if len(bugs) == 1 and "factor" in expected[0]:
        assert first["classes"][0]["value"] == pytest.approx(expected[0]["factor"], rel=1e-2)


@pytest.mark.parametrize("case", _parameters())
def test_case(case: Case, references: References, tmp_path: Path) -> None:
    outcome = diff(tmp_path / "report", references(case), case.candidate_command)
    bugs = [bug_catalog.load(name) for name in case.bugs]
    if all(bug_catalog.is_control(bug) for bug in bugs):
        expect_clean(outcome)
    else:
        expect_bugs(outcome, bugs)
