#!/usr/bin/env python3
"""What a check costs with millions of records of many ranks: bench/README.md.

    .venv/bin/python bench/many_records.py [--ranks 16,256,1024] [--records 1e6] [--columns 16]
        [--folder DIR] [--ttrace PATH]

Writes a reference of one rank and candidates of equal values, each record of a row: 8 ranks
share each tensor in shards, and stages of at most 128 ranks have tensors of their own. It checks
that all of them were compared before it says what that took, beside reading the same files once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TTRACE = Path(sys.executable).parent / "ttrace"
ROLES = ("input", "output", "grad_output", "grad_input")
LEGS = ("real", "replay")
TP, STAGE = 8, 128


def write(folder: Path, ranks: int, stages: int, tensors: int, columns: int) -> None:
    """`tensors` of each stage. A reference is one rank that has all stages."""
    import torch

    from ttrace import _native

    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    tp = min(TP, ranks)
    per_stage = max(ranks // stages, 1)
    dims = [("pp", stages), ("dp", per_stage // tp), ("tp", tp)] if ranks > 1 else []
    values = torch.randn(tensors, TP, columns, generator=torch.Generator().manual_seed(0))
    for rank in range(ranks):
        stage, within = divmod(rank, per_stage)
        place = [stage, within // tp, within % tp] if ranks > 1 else []
        writer = _native.Writer(str(folder), rank, ranks, dims, place)
        own = values[:, rank % tp] if tp > 1 else values
        shape, placements = ([1, columns], "tp:Shard(0)") if tp > 1 else ([TP, columns], "")
        strides = [columns, 1]
        for leg in LEGS:
            for of in range(stages) if ranks == 1 else (stage,):
                for i, value in enumerate(own):
                    role = ROLES[i % len(ROLES)]
                    fqn = f"layers.{of}.{i // 32}.module{i // 4 % 8}"
                    spec = writer.spec(fqn, role, "0", "float32", shape, placements)
                    pass_ = "backward" if role.startswith("grad") else "forward"
                    writer.append(spec, leg, 0, 0, pass_, -1, 0, value.data_ptr(), strides)
            writer.seal(0, leg)
        writer.close(True, "")


def run(*words: str | Path) -> tuple[float, float, float]:
    """Processor seconds of all threads, seconds by the clock, and GB of memory at most."""
    start = time.monotonic()
    started = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(started.pid, 0)
    clock = time.monotonic() - start
    return usage.ru_utime + usage.ru_stime, clock, usage.ru_maxrss / 2**20


def measure(folder: Path, ranks: int, records: int, columns: int, ttrace: Path) -> str:
    stages = max(ranks // STAGE, 1)
    tensors = records // ranks // len(LEGS)
    reference, candidate, report = folder / "reference", folder / "candidate", folder / "report"
    for path, of in ((reference, 1), (candidate, ranks)):
        # Elsewhere: a process counts its parent's memory as its own until it is a program.
        writing = multiprocessing.Process(target=write, args=(path, of, stages, tensors, columns))
        writing.start()
        writing.join()
        assert writing.exitcode == 0
    read = run("sh", "-c", f"find {reference} {candidate} -type f -exec cat {{}} + > /dev/null")
    inspected = run(ttrace, "inspect", candidate)
    checked = run(ttrace, "check", reference, candidate, "-o", report)
    result = json.loads((report / "result.json").read_text())
    assert result["coverage"]["compared"] == stages * tensors, result["coverage"]
    for path in (reference, candidate, report):
        shutil.rmtree(path)
    cells = [f"{ranks:,}", f"{stages * tensors:,}", f"{ranks * tensors * len(LEGS):,}"]
    cells.append(f"{4 * columns:,}")
    cells += [f"{processor:.1f}, {clock:.1f}" for processor, clock, _ in (read, inspected, checked)]
    cells += [f"{memory:.2f}" for _, _, memory in (inspected, checked)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--ranks", default="16,256,1024", help="of the candidates")
    options.add_argument("--records", type=float, default=1e6, help="of each candidate")
    options.add_argument("--columns", default="16", help="elements of a record")
    options.add_argument("--ttrace", type=Path, default=TTRACE, help="the command to measure")
    options.add_argument("--folder", type=Path, help="where to write; default: the system's")
    chosen = options.parse_args()
    print(
        "Seconds of processors, by the clock.\n\n"
        "| ranks | tensors | records | bytes each | read | inspect | check "
        "| inspect GB | check GB |\n" + "|---" * 9 + "|"
    )
    shapes = itertools.product(chosen.ranks.split(","), chosen.columns.split(","))
    for ranks, columns in (map(int, shape) for shape in shapes):
        with tempfile.TemporaryDirectory(prefix="ttrace-bench-", dir=chosen.folder) as name:
            print(
                measure(Path(name), ranks, int(chosen.records), columns, chosen.ttrace), flush=True
            )


if __name__ == "__main__":
    main()
