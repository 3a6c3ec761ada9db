#!/usr/bin/env python3
"""Runs a training script under `ttrace record`, and prints what each rerun took: a line
`leg NAME SECONDS`, from the restored state of before to the last byte in the files.

    ttrace record -o DIR --legs LEGS -- python bench/leg_seconds.py SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from wrapped_script import run_script

from ttrace.capture.rerun import Reruns


def run_leg(reruns: Reruns, name: str, after: Any) -> bool:
    begin = time.perf_counter()
    goes_on = _run_leg(reruns, name, after)
    print(f"leg {name} {time.perf_counter() - begin:.6f}", flush=True)
    return goes_on


_run_leg = Reruns._run_leg
Reruns._run_leg = run_leg  # type: ignore[method-assign]

if __name__ == "__main__":
    run_script(sys.argv[1:])
