"""A training script run by another, as if it had been started itself: no benchmark, but what those
that put something in its way end with."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_script(command: Sequence[str]) -> None:
    """`command`: the script and its arguments. What lies beside it can be imported by it."""
    sys.argv = list(command)
    sys.path[0] = str(Path(command[0]).resolve().parent)
    runpy.run_path(command[0], run_name="__main__")
