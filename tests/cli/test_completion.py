"""Completion of command lines, by real shells: bash, and zsh and fish where they are installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TTRACE = Path(sys.executable).with_name("ttrace")
ENVIRONMENT = {**os.environ, "PATH": f"{TTRACE.parent}:{os.environ['PATH']}", "TERM": "dumb"}
PROJECT = """
[experiments.alpha]
reference = "a"
candidates = { two = "b", four = "c" }
[experiments.beta]
reference = "a"
candidate = "b"
"""
# Reads words of a command line as readline hands them over, the last one to be completed.
BASH = """
source ./script; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_ttrace; printf '%s\\n' "${COMPREPLY[@]}"
"""
# An interactive zsh whose completion prints what it would offer.
ZSH = """
zmodload zsh/zpty; zpty shell zsh -f -i
zpty -w shell "PROMPT=; autoload -Uz compinit; compinit -u -d $2; source <($1 completion zsh)"
zpty -w shell 'compadd() { local -a found; [[ $* == *(-D|-O|-A)* ]] || \
  { builtin compadd -O found "$@"; print -rl -- OFFER:$^found }; builtin compadd "$@" }'
zpty -w shell 'bindkey "^I" complete-word; print READY-$((1+1))'
line=; while [[ $line != *READY-2* ]]; do zpty -r shell line || exit 3; done
zpty -w -n shell "$3"$'\\t'
sleep 1.5
while zpty -r -t shell line; do print -r -- "$line"; done
zpty -d shell
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ttrace.toml").write_text(PROJECT)
    (tmp_path / "other.toml").write_text(PROJECT.replace("alpha", "gamma"))
    (tmp_path / "a file").write_text("")
    (tmp_path / "ref").mkdir()
    return tmp_path


@functools.cache
def script() -> str:
    """For all tests: it does not depend on the folder."""
    return subprocess.run(
        [str(TTRACE), "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout


def bash(project: Path, *words: str) -> set[str]:
    (project / "script").write_text(script())
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", "script", *words],
        cwd=project,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    # Outside of readline there is nothing to be told how words are quoted.
    assert not done.stderr.replace("compopt: not currently executing completion function", ""), done
    return set(filter(None, done.stdout.splitlines()))


EXPERIMENTS = {"alpha", "alpha/two", "alpha/four", "beta", "beta/candidate"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ttrace", "di"], {"diff"}),
        (["ttrace", "re"], {"record", "report"}),
        (["ttrace", "diff", "--ke"], {"--keep", "--keep-values"}),
        (["ttrace", "diff", "--keep", ""], {"traces", "report"}),
        (["ttrace", "diff", "--keep", "=", "t"], {"traces"}),
        (["ttrace", "diff", "--keep", "="], {"traces", "report"}),
        (["ttrace", "run", ""], EXPERIMENTS),
        (["ttrace", "diff", "alpha/"], {"alpha/two", "alpha/four"}),
        (["ttrace", "run", "--project", "other.toml", "g"], {"gamma", "gamma/two", "gamma/four"}),
        (["ttrace", "run", "--project", "gone.toml", ""], set()),
        (["ttrace", "completion", ""], {"bash", "zsh", "fish"}),
        (["ttrace", "check", "r"], {"ref"}),
        (["ttrace", "check", "a"], {"a file"}),
        (["ttrace", "diff", "--reference-trace", "r"], {"ref"}),
        (["ttrace", "record", "-o", "x", "--", "--keep", "a"], {"a file"}),
        (["ttrace", "check", "--quie"], {"--quiet"}),
        (["ttrace", "nonsense", "--"], set()),
    ],
)
def test_bash(project: Path, words: list[str], offered: set[str]) -> None:
    assert bash(project, *words) == offered


def test_all_options_of_all_commands_are_offered(project: Path) -> None:
    commands = bash(project, "ttrace", "") - {"--help", "--version"}
    assert {"diff", "run", "completion"} <= commands
    for command in commands:
        shown = subprocess.run(
            [str(TTRACE), command, "--help"], capture_output=True, text=True, timeout=60
        ).stdout
        lines = [line.split()[0].split(",") for line in shown.splitlines() if line[:3] == "  -"]
        names = {name for words in lines for name in words if name.startswith("-")}
        assert names and names <= bash(project, "ttrace", command, "-"), command


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ttrace di", {"diff"}),
        ("ttrace diff --keep=", {"--keep=traces", "--keep=report"}),
        ("ttrace run ", EXPERIMENTS),
        ("ttrace run --project other.toml g", {"gamma", "gamma/two", "gamma/four"}),
        ("ttrace completion f", {"fish"}),
        ("ttrace check re", {"ref/"}),
        ("ttrace check --bit", {"--bitwise"}),
    ],
)
def test_fish(project: Path, line: str, offered: set[str]) -> None:
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"ttrace completion fish | source; complete -C '{line}'"],
        cwd=project,
        env={**ENVIRONMENT, "HOME": str(project)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert {row.split("\t")[0] for row in done.stdout.splitlines()} == offered, done


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ttrace ba", {"baseline"}),
        ("ttrace diff --keep ", {"traces", "report"}),
        ("ttrace run alpha/", {"alpha/two", "alpha/four"}),
        ("ttrace completion ", {"bash", "zsh", "fish"}),
        ("ttrace check --bit", {"--bitwise"}),
    ],
)
def test_zsh(project: Path, line: str, offered: set[str]) -> None:
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", str(TTRACE), str(project / "dump"), line],
        cwd=project,
        env={**ENVIRONMENT, "HOME": str(project)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    rows = done.stdout.replace("\r", "").splitlines()
    found = {row.split("OFFER:")[1] for row in rows if "OFFER:" in row and "$^" not in row}
    assert found == offered, done
