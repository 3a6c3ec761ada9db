"""The C++ tests, as tests, so that one run reports everything."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import number_formats
from build_commands import ROOT, run

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def ci_build() -> None:
    run("scripts/configure.sh", "ci")
    run("cmake", "--build", "--preset", "ci")


def test_cpp_tests_pass_under_sanitizers(ci_build: None) -> None:
    """Each stage's tests in one process: ctest starts one for every test, which under sanitizers
    takes longer than the tests."""
    programs = sorted((ROOT / "build" / "ci").glob("*_test"))
    src = ROOT / "src"
    stages = {p.relative_to(src).parts[0] for p in src.rglob("*_test.cc")}
    assert {p.name.removesuffix("_test") for p in programs} == stages
    # The longest first, and each in two parts: alone, one would be left at the end.
    programs.sort(key=lambda program: program.stat().st_size, reverse=True)
    parts = [(program, part) for program in programs for part in "01"]

    def passed(program: Path, part: str) -> bool:
        shard = (f"GTEST_SHARD_INDEX={part}", "GTEST_TOTAL_SHARDS=2")
        # Who allocated is told by two frames: to note thirty each time is a tenth of the time.
        options = "ASAN_OPTIONS=malloc_context_size=2"
        return "[  PASSED  ]" in run("env", *shard, options, str(program), "--gtest_brief=1")

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        assert all(workers.map(passed, *zip(*parts, strict=True)))


def test_damaged_traces_crash_nothing_under_sanitizers(ci_build: None) -> None:
    output = run("ctest", "--preset", "ci", "--no-tests=error", "-R", "^damage")
    assert "100% tests passed" in output, output[-2000:]


# Each pair of patterns of a format: half a minute, for what changes once a year.
LONG = {"pairs_of_patterns_are_compared"}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            check,
            id=check.__name__,
            marks=pytest.mark.matrix if check.__name__ in LONG else (),
        )
        for check in number_formats.CHECKS
    ],
)
def test_numbers_are_what_numpy_and_ml_dtypes_make_of_them(
    ci_build: None, check: number_formats.Check
) -> None:
    check(number_formats.Filter(ROOT / "build" / "ci" / "number_formats"))
