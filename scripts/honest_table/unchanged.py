"""Whether a loop that is recorded computes what it computes alone, bit by bit, on 1, 2 and 4 ranks:
losses, gradients of each step, parameters, random states."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from .draw import ROOT, Draw
from .outcome import ENVIRONMENT, TTRACE, command

RANKS = (1, 2, 4)
PROGRAMS = 20
_SECONDS = 600


def chosen(draws: list[Draw]) -> list[Draw]:
    """Each of another kind, from all of the list, of those that print their hashes at their end: a
    library's trainer does not come to it."""
    says = [draw for draw in draws if "run.end()" in draw.script().read_text()]
    first = {draw.kind: draw for draw in reversed(says)}
    kinds = sorted(first)
    return [first[kinds[i * len(kinds) // PROGRAMS]] for i in range(PROGRAMS)]


def difference(draw: Draw, ranks: int, folder: Path) -> str:
    """Nothing if there is none; else what differs."""
    words = command(ranks, draw.on_each_rank())
    record = [str(TTRACE), "record", "--force", "-o", str(folder), "--legs", "replay,noise:1", "--"]
    alone, recorded = _lines(words), _lines([*record, *words])
    if isinstance(alone, str) or isinstance(recorded, str):
        return f"alone: {alone}; recorded: {recorded}"
    if len(alone) != ranks + 1:
        return f"{len(alone)} lines of {ranks} ranks"
    return "" if alone == recorded else f"{alone} is {recorded}"


def _lines(words: list[str]) -> list[str] | str:
    """What the ranks print of their losses and hashes; or what went wrong."""
    environment = {**os.environ, **ENVIRONMENT, "HONEST_HASHES": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return f"exit {done.returncode} of {shlex.join(words)}: {done.stderr[-500:]}"
    return sorted(re.findall(r"^(?:losses|hashes of rank) .*$", done.stdout, re.MULTILINE))
