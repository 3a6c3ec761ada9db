"""Running the zoo under the installed `ttrace`, as a user does, and reading what it said."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from launch_ranks import launcher

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TTRACE = BIN / "ttrace"
TIMEOUT_S = 600


def launch(nproc: int, script: str, *flags: str) -> str:
    """The command line of one distributed run, as a user would type it."""
    return shlex.join([*launcher(nproc), str(ROOT / "zoo" / script), *flags])


@dataclass
class Outcome:
    """One call of `ttrace`."""

    code: int
    text: str
    seconds: float
    folder: Path
    result: dict = field(default_factory=dict)

    @property
    def first(self) -> dict:
        return self.result["culprits"][0]

    @property
    def letters(self) -> list[str]:
        return [entry["class"] for entry in self.first["classes"]]

    def explain(self) -> str:
        """What a failing test should show."""
        return f"exit {self.code}\n{self.text[-6000:]}"


def ttrace(*arguments: str | Path, folder: Path | None = None) -> Outcome:
    start = time.monotonic()
    done = subprocess.run(
        [str(TTRACE), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    outcome = Outcome(
        done.returncode,
        done.stdout + done.stderr,
        time.monotonic() - start,
        folder or Path(),
    )
    if folder is not None and (folder / "result.json").exists():
        outcome.result = json.loads((folder / "result.json").read_text())
    return outcome


def record_reference(
    folder: Path, command: str, iterations: str = "0:2", options: tuple[str, ...] = ()
) -> Outcome:
    """Saves a reference bundle that any number of candidates can be compared with."""
    return ttrace(
        "record",
        "--as-reference",
        "--iterations",
        iterations,
        "--dropout",
        "off",
        *options,
        "-o",
        folder,
        "--",
        "/bin/sh",
        "-c",
        f"exec {command}",
        folder=folder,
    )


def diff(folder: Path, reference: Path, candidate: str, *options: str) -> Outcome:
    return ttrace(
        "diff",
        "-o",
        folder,
        "--reference-trace",
        reference,
        "--candidate",
        candidate,
        *options,
        folder=folder,
    )


def bytes_of_tensors(trace: Path) -> int:
    return sum(file.stat().st_size for file in trace.rglob("*.safetensors"))
