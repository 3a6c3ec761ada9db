#!/usr/bin/env python3
"""What a check costs with 10^6 records of many ranks: bench/README.md.

    .venv/bin/python bench/many_records.py

Writes a reference of one rank and candidates of equal values, each of 16 elements, and checks that
all of them were compared before it says what that took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from ttrace import _native

TTRACE = Path(sys.executable).parent / "ttrace"
ROLES = ("input", "output", "grad_output", "grad_input")
RECORDS = 1_000_000


def write(folder: Path, ranks: int, tensors: int) -> None:
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    values = torch.randn(tensors, 16, generator=torch.Generator().manual_seed(0))
    tp = min(8, ranks)
    for rank in range(ranks):
        dims = [("dp", ranks // tp), ("tp", tp)]
        writer = _native.Writer(str(folder), rank, ranks, dims, [rank // tp, rank % tp])
        for i, value in enumerate(values):
            role = ROLES[i % len(ROLES)]
            fqn = f"layers.{i // 32}.module{i // 4 % 8}"
            spec = writer.spec(fqn, role, "0", "float32", [16], "", -1, 0, (1, 1), [])
            pass_ = "backward" if role.startswith("grad") else "forward"
            writer.append(spec, "real", 0, 0, pass_, -1, 0, value.data_ptr(), [1])
        writer.seal(0, "real")
        writer.close(True, "")


def run(*words: str | Path) -> tuple[float, float]:
    """Seconds, and GB of memory at most."""
    begin = time.monotonic()
    started = subprocess.Popen(
        [TTRACE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(started.pid, 0)
    return time.monotonic() - begin, usage.ru_maxrss / 2**20


def main() -> None:
    print("| ranks | tensors | records | inspect s | GB | check s | GB |\n" + "|---" * 7 + "|")
    for ranks in (16, 256, 1024):
        tensors = RECORDS // ranks
        with tempfile.TemporaryDirectory(prefix="ttrace-bench-") as name:
            folder = Path(name)
            write(folder / "reference", 1, tensors)
            write(folder / "candidate", ranks, tensors)
            inspected = run("inspect", folder / "candidate")
            report = folder / "report"
            checked = run("check", folder / "reference", folder / "candidate", "-o", report)
            result = json.loads((report / "result.json").read_text())
            assert result["coverage"]["compared"] == tensors, result["coverage"]
        cells = [f"{ranks:,}", f"{tensors:,}", f"{ranks * tensors:,}"]
        cells += [f"{number:.1f}" for number in (*inspected, *checked)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
