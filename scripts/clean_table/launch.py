"""Runs the commands of one comparison: reference, candidate, check."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clean_table.outcome import outcome
from clean_table.plan import Candidate, Command, Model

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
TIMEOUT = "40m"
FIRST_LINES = 12


class CommandFailed(Exception):
    """A command that did not record. `refused`: the trainer fails without ttrace as well."""

    def __init__(self, refused: bool, text: str) -> None:
        super().__init__(text)
        self.refused = refused

    @property
    def verdict(self) -> str:
        return "refused" if self.refused else "failed"


def run(words: list[str], log: Path) -> int:
    environment = {**os.environ, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as out:
        out.write(f"$ {shlex.join(words)}\n")
        out.flush()
        return subprocess.run(words, stdout=out, stderr=out, cwd=ROOT, env=environment).returncode


def training(command: Command) -> list[str]:
    script = str(ROOT / "zoo" / command.script)
    if command.processes == 1:
        return [sys.executable, script, *command.flags]
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(command.processes)]
    return [*launcher, script, *command.flags]


def shown(command: Command) -> str:
    """As a user would type it."""
    launcher = f"torchrun --nproc-per-node {command.processes}"
    start = "python" if command.processes == 1 else launcher
    return f"{start} zoo/{command.script} {shlex.join(command.flags)}"


def record(model: Model, command: Command, folder: Path, log: Path, how: list[str]) -> None:
    """Raises CommandFailed, after it has tried the command alone."""
    words = [str(BIN / "ttrace"), "record", "--force", "--timeout", TIMEOUT, "-o", str(folder)]
    words += ["--iterations", "{}:{}".format(*model.iterations), *how, "--", *training(command)]
    code = run(words, log)
    if code != 0:
        alone = log.with_suffix(".alone.log")
        refused = run(training(command), alone) != 0
        raise CommandFailed(refused, f"exit {code}: {last_words(alone if refused else log)}")


def last_words(log: Path) -> str:
    """The last error that a trainer's log names."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\w*(Error|Exception|SystemExit)\b.*:", line)]
    own = [line for line in errors if "ChildFailedError" not in line]
    return (own or lines or [""])[-1].strip()[-300:]


def judge(model: Model, candidate: Candidate, folder: Path) -> dict[str, Any]:
    """One line of the results, and the traces in `folder`."""
    log = folder / "candidate.log"
    graft = ["--graft", str(folder / "reference")]
    started = time.monotonic()
    try:
        record(model, candidate.command, folder / "candidate", log, graft)
    except CommandFailed as failure:
        return {"verdict": failure.verdict, "reason": str(failure)}
    recorded = time.monotonic()
    words = [str(BIN / "ttrace"), "check", str(folder / "reference"), str(folder / "candidate")]
    report = folder / "report"
    code = run([*words, "--force", "-o", str(report)], folder / "check.log")
    found = report / "result.json"
    if not found.exists():
        return {"verdict": "failed", "reason": f"ttrace check: exit {code} without a result"}
    text = (folder / "check.log").read_text(errors="replace")
    return {
        **outcome(json.loads(found.read_text())),
        "exit_code": code,
        "first_lines": text.splitlines()[1 : 1 + FIRST_LINES],
        "seconds": round(recorded - started, 1),
        "check_seconds": round(time.monotonic() - recorded, 1),
    }
