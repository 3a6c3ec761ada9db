"""What `ttrace diff` says of one draw: a line of the results."""

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

from .draw import ROOT, Draw

sys.path.insert(0, str(ROOT / "tests"))
from launch_ranks import launcher

TTRACE = Path(sys.executable).parent / "ttrace"
LEGS = ("--reference-legs", "replay,noise:2,isolated.noise:1", "--legs", "isolated")
TIMEOUT = "10m"


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def command(ranks: int, words: list[str]) -> list[str]:
    start = [sys.executable] if ranks == 1 else launcher(ranks)
    return [*start, *words]


def diff(folder: Path, draw: Draw, with_fault: bool, reference: Path | None) -> dict[str, Any]:
    """Compares a draw with its reference, which is recorded unless one is there."""
    source = ["--reference-trace", str(reference)] if reference else []
    source = source or ["--reference", shlex.join(command(1, draw.reference()))]
    candidate = ["--candidate", shlex.join(command(draw.ranks, draw.candidate(with_fault)))]
    words = [str(TTRACE), "diff", "--force", "--timeout", TIMEOUT, "-o", str(folder)]
    environment = {**os.environ, **ENVIRONMENT, "NO_COLOR": "1"}
    begin = time.monotonic()
    done = subprocess.run(
        [*words, *source, *candidate, *LEGS],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    line = {"seconds": round(time.monotonic() - begin, 1), "exit_code": done.returncode}
    log = folder / "candidate.log"
    if log.exists() and re.search(r"^Traceback", log.read_text(errors="replace"), re.MULTILINE):
        # A candidate that runs alone and does not under capture: worse than a false alarm.
        return {**line, "verdict": "crashed", "reason": last_line(log.read_text(errors="replace"))}
    # Why a side was launched once more for each leg; empty: both ran all legs in one launch.
    line["launched_again"] = re.findall(r"not run again in place \((.*?)\), so", done.stderr)
    return _said(folder, line, done.stdout + done.stderr)


def check(folder: Path) -> dict[str, Any]:
    """Judges again the traces that `diff` left in `folder`."""
    sides = [str(folder / side) for side in ("reference", "candidate")]
    done = subprocess.run(
        [str(TTRACE), "check", *sides, "--force", "-o", str(folder / "again")],
        cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return _said(folder / "again", {"exit_code": done.returncode}, done.stdout + done.stderr)


def _said(folder: Path, line: dict[str, Any], printed: str) -> dict[str, Any]:
    found = folder / "result.json"
    if not found.exists():
        return {**line, "verdict": "refused", "reason": last_line(printed)}
    result = json.loads(found.read_text().replace(f"{ROOT}/", ""))
    said = outcome(result)
    del said["roles"]
    culprits = result["culprits"]
    if culprits:
        first = culprits[0]
        line["stage"], line["role"] = first["stage"], first["role"]
        line["classes"] = [c["class"] for c in first["classes"]]
    return {**said, **line}


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else ""
