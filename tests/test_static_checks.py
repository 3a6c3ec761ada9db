"""What is checked without running anything, as tests, so that one run reports everything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from build_commands import ROOT, run

pytestmark = pytest.mark.build


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


def test_clang_tidy_is_silent_on_what_changed() -> None:
    run("scripts/configure.sh", "tidy")
    run(sys.executable, "scripts/tidy.py")
