"""The static checks and the C++ tests, as tests, so that one run reports everything."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import number_formats

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build


def run(*command: str, seconds: int = 2400) -> str:
    """Runs a command at the project's root; fails with the end of its output if it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-60:])
        pytest.fail(f"{' '.join(command)[:200]}: exit {done.returncode}\n{tail}", pytrace=False)
    return done.stdout


def sources(*suffixes: str) -> list[str]:
    folders = ("include", "src", "python", "bench", "fuzz", "tests")
    found = (p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in suffixes)
    return sorted(str(p.relative_to(ROOT)) for p in found)


def test_cpp_is_formatted() -> None:
    run("clang-format-14", "--dry-run", "-Werror", *sources(".cc", ".h"))


def test_python_is_formatted_and_lints() -> None:
    ruff = str(Path(sys.executable).with_name("ruff"))
    run(ruff, "format", "--check", "--diff", ".")
    run(ruff, "check", ".")


def test_no_stage_depends_on_a_later_one() -> None:
    run(sys.executable, "scripts/check_layers.py")


def test_documents_name_files_that_exist() -> None:
    run(sys.executable, "scripts/check_docs.py")


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
        return "[  PASSED  ]" in run("env", *shard, str(program), "--gtest_brief=1")

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        assert all(workers.map(passed, *zip(*parts, strict=True)))


def test_damaged_traces_crash_nothing_under_sanitizers(ci_build: None) -> None:
    output = run("ctest", "--preset", "ci", "--no-tests=error", "-R", "^damage")
    assert "100% tests passed" in output, output[-2000:]


def test_clang_tidy_is_silent_on_what_changed() -> None:
    run("scripts/configure.sh", "tidy")
    run(sys.executable, "scripts/tidy.py")


@pytest.mark.parametrize("check", number_formats.CHECKS, ids=lambda check: check.__name__)
def test_numbers_are_what_numpy_and_ml_dtypes_make_of_them(
    ci_build: None, check: number_formats.Check
) -> None:
    check(number_formats.Filter(ROOT / "build" / "ci" / "number_formats"))
