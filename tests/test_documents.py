"""What the documents promise: their links, their evidence, the reference of the commands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from build_commands import ROOT, run


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_no_dead_link_and_no_lost_page() -> None:
    run("scripts/docs.sh", "--check")


def site(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What a build says of a project whose first page is this text."""
    docs = folder / "docs"
    docs.mkdir()
    for name in ("conf.py", "site"):
        (docs / name).symlink_to(ROOT / "docs" / name)
    (folder / "CMakeLists.txt").symlink_to(ROOT / "CMakeLists.txt")
    (docs / "index.md").write_text(text)
    command = [str(ROOT / "scripts" / "docs.sh"), *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def test_what_is_wrong_with_a_page_ends_the_build(tmp_path: Path) -> None:
    links = "[a](gone.md) [b](../src/gone.h) [c](#gone-too) [d](lost.md#nowhere)"
    (tmp_path / "lost.md").write_text("# Nobody leads here\n")
    done = site(tmp_path, f"# First\n\n{links}\n", "--check")
    assert done.returncode != 0
    for said in ("gone.md", "gone.h", "gone-too", "lost.md", "isn't included in any toctree"):
        assert said in done.stderr, done.stderr


@pytest.mark.parametrize("here", [True, False])
def test_pages_work_without_a_network(tmp_path: Path, here: bool) -> None:
    (tmp_path / "dot.svg").write_text("<svg/>")
    picture = "../dot.svg" if here else "https://other.example/dot.svg"
    done = site(tmp_path, f"# First\n\n![a dot]({picture})\n")
    assert (done.returncode == 0) == here, done.stderr
    assert ("ask other hosts" in done.stderr) != here, done.stderr


def test_the_reference_of_commands_is_what_they_say() -> None:
    run(sys.executable, "scripts/command_reference.py", "--check")


def evidence(root: Path, row: str, writer: str) -> list[str]:
    pages = root / "docs" / "evidence"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text(f"| page | what it shows | made by |\n|---|---|---|\n{row}\n")
    (pages / "matrix.md").write_text("# Matrix\n")
    (root / "scripts").mkdir()
    (root / "scripts" / "matrix.py").write_text(writer)
    return list(script("check_docs").unproven_pages(root))


NAMES_ITS_PAGE = 'TABLE = ROOT / "docs" / "evidence" / "matrix.md"\n'


@pytest.mark.parametrize(
    ("row", "writer", "said"),
    [
        ("| [matrix](matrix.md) | runs | `scripts/matrix.py` |", NAMES_ITS_PAGE, []),
        ("", NAMES_ITS_PAGE, ["has no row for matrix.md"]),
        ("| [matrix](matrix.md) | runs | somehow |", "", ["names no script that makes matrix.md"]),
        ("| [matrix](matrix.md) | runs | by hand, once |", "", []),
        (
            "| [matrix](matrix.md) | runs | `scripts/matrix.py` |",
            'TABLE = "docs/matrix.md"\n',
            ["makes matrix.md, but does not name it"],
        ),
    ],
)
def test_evidence_is_what_a_script_makes(
    tmp_path: Path, row: str, writer: str, said: list[str]
) -> None:
    found = evidence(tmp_path, row, writer)
    assert len(found) == len(said) and all(w in f for w, f in zip(said, found, strict=True)), found


def start_page() -> tuple[str, list[str]]:
    """The script of the page, and the commands that it has the reader type in its folder."""
    text = (ROOT / "docs" / "start.md").read_text()
    source = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    typed = re.findall(r"^ttrace (?:diff|inspect|check|report) .*$", text, re.MULTILINE)
    return source, typed


@pytest.mark.matrix
def test_the_first_five_minutes_go_as_told(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "start.md").read_text()
    source, typed = start_page()
    script = tmp_path / "train.py"
    script.write_text(source)
    codes, output = {}, {}
    bin_folder = Path(sys.executable).parent
    for command in typed:
        if command.startswith("ttrace diff -o fixed"):
            script.write_text(source.replace("part == parts ", "part == parts - 1 "))
        done = subprocess.run(
            ["bash", "-c", f'PATH="{bin_folder}:$PATH"; {command}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        word = " ".join(command.split()[1:4])
        codes[word], output[word] = done.returncode, done.stdout
    assert codes["diff -o report"] == 1, output
    assert codes["diff -o fixed"] == 0, output
    for line in ("DIVERGED", "WHY      P: missing partial sum"):
        shown = next(one for one in text.splitlines() if one.startswith(line))
        assert shown in output["diff -o report"], output["diff -o report"]
    assert "WITHIN BOUNDS  every checkable tensor" in output["diff -o fixed"]
    assert all(code in (0, 1) for code in codes.values()), codes
