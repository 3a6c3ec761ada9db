#!/usr/bin/env python3
"""Runs a training script under `ttrace record`, and prints what each rerun took: a line
`leg NAME SECONDS`, from the restored state of before to the last byte in the files.

    ttrace record -o DIR --legs LEGS -- python bench/leg_seconds.py SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any

from ttrace.capture.rerun import Reruns


def run_leg(reruns: Reruns, name: str, after: Any) -> bool:
    begin = time.perf_counter()
    goes_on = _run_leg(reruns, name, after)
    print(f"leg {name} {time.perf_counter() - begin:.6f}", flush=True)
    return goes_on


_run_leg = Reruns._run_leg
Reruns._run_leg = run_leg  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
