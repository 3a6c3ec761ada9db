"""The suites of zoo/suites, run as their projects would: right, and with the planted bug."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from suite_table import SUITES, run


@pytest.mark.matrix
@pytest.mark.parametrize("planted", [False, True], ids=["right", "planted"])
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_fails_where_its_bug_is_and_nowhere_else(suite, planted):
    cases = run(suite, planted)
    assert len(cases) >= 3 and suite.test in [case.name for case in cases]
    for case in cases:
        wrong = planted and case.name == suite.test
        assert case.passed is not wrong, case
        if not wrong:
            assert case.verdict in ("within", "bitwise_equal"), case
        else:
            assert (case.verdict, case.first) == ("diverged", suite.first), case
            assert suite.class_ == "" or case.reason.endswith(f"class {suite.class_}"), case
