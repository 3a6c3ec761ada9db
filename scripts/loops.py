#!/usr/bin/env python3
"""Captures loops of other people, clean and with a bug, and writes docs/evidence/loops.md.

    scripts/loops.sh                 # all, after installing requirements-loops.txt
    scripts/loops.sh nanogpt peft    # some; the others' rows stay
    scripts/loops.sh --missing       # those that have no row yet

Each loop runs as a reference (one process; a pair of ranks where its model needs a device mesh), as
a candidate of more ranks, and as that candidate with a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/evidence/loops.md"
PYTHON = sys.executable
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone"
REFERENCE_LEGS = "replay,noise:2,isolated.noise:1"
# What a fault is, and how the name of the first place must begin.
BUGS = {
    "local_gradients": ("gradients are not averaged", "grad_reduced"),
    "unsummed_row": ("a row-parallel linear's output is not summed", "output"),
}


@dataclass(frozen=True)
class Loop:
    name: str
    script: str
    reference: str
    candidate: str
    lines: int  # that had to be changed
    ranks: tuple[int, int] = (1, 2)
    bug: str = "local_gradients"


LOOPS = (
    Loop("transformers Trainer", "transformers_trainer", "--accumulate 4", "--accumulate 2", 0),
    Loop("accelerate", "accelerate_loop", "--accumulate 4", "--accumulate 2", 0),
    Loop("Lightning Trainer", "lightning_trainer", "--accumulate 4", "--accumulate 2", 0),
    Loop("Lightning, manual optimization", "lightning_trainer", "--manual --accumulate 4",
         "--manual --accumulate 2", 0),
    Loop("peft LoRA, Trainer", "transformers_trainer", "--lora --accumulate 4",
         "--lora --accumulate 2", 0),
    Loop("transformers, plain loop", "transformers_plain", "--accumulate 4", "--accumulate 2", 1),
    Loop("nanoGPT", "nanogpt", "--accumulate 4", "--accumulate 2", 1),
    Loop("nanoGPT, torch.compile", "nanogpt", "--accumulate 4", "--accumulate 2 --compile", 1),
    Loop("pytorch/examples DDP", "pytorch_ddp", "--rows 20", "--rows 10", 1),
    Loop("pytorch/examples sequence parallel", "pytorch_sequence_parallel", "", "", 1, (2, 4),
         "unsummed_row"),
    Loop("pytorch/examples tensor parallel", "pytorch_sequence_parallel", "--whole", "--whole", 1,
         (2, 4), "unsummed_row"),
)  # fmt: skip


def command(ranks: int, *words: str) -> str:
    start = PYTHON if ranks == 1 else f"{TORCHRUN} --nproc-per-node {ranks}"
    return " ".join((start, *filter(None, words)))


def ttrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [PYTHON, "-m", "ttrace._cli", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip


def outcome(folder: Path, done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """The verdict in a few words, and the role of the first tensor that is wrong."""
    results = sorted(folder.rglob("result.json"))
    if not results:
        tail = (done.stdout + done.stderr).strip().splitlines()[-1:]
        return f"no result ({tail[0][:60] if tail else done.returncode})", ""
    result = json.loads(results[0].read_text())
    if result["verdict"] != "diverged":
        return result["verdict"], ""
    first = result["culprits"][0]
    letters = ", ".join(found["class"] for found in first["classes"])
    place = f"`{first['fqn']}`" if first["fqn"] else "the model itself"
    return f"diverged at {place}, {first['role']} ({letters or 'no class'})", first["role"]


def measure(loop: Loop, folder: Path) -> tuple[list[str], bool]:
    """The row, and whether it is as it should be. In `folder` are references by command."""
    script = f"zoo/loops/{loop.script}.py"
    begin = time.monotonic()
    reference_command = command(loop.ranks[0], script, loop.reference)
    reference = str(folder / "".join(c if c.isalnum() else "-" for c in reference_command[-80:]))
    if not os.path.exists(reference):
        done = ttrace(
            "record", "-o", reference, "--legs", REFERENCE_LEGS, "--",
            "/bin/sh", "-c", reference_command,
        )  # fmt: skip
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="\n")
    verdicts = []
    fine = True
    words, role = BUGS[loop.bug]
    for bug in (None, loop.bug):
        start = (script,) if bug is None else ("zoo/loops/with_bug.py", bug, script)
        out = folder / "candidate"
        done = ttrace(
            "diff", "-o", str(out), "--reference-trace", reference, "--legs", "isolated",
            "--candidate", command(loop.ranks[1], *start, loop.candidate),
        )  # fmt: skip
        verdict, found = outcome(out, done)
        verdicts.append(verdict)
        as_wanted = verdict in ("within", "bitwise_equal") if bug is None else found == role
        if not as_wanted:
            fine = False
            print(done.stdout, done.stderr, sep="\n")
        shutil.rmtree(out, ignore_errors=True)
    seconds = f"{time.monotonic() - begin:.0f}"
    ranks = f"{loop.ranks[0]} and {loop.ranks[1]}"
    row = [loop.name, ranks, str(loop.lines), verdicts[0], words, verdicts[1], seconds]
    return row, fine


HEADER = """# Training loops of other people

Written by `scripts/loops.sh`, which `make matrix` runs too. Each loop is captured as a reference
and as a candidate of more ranks, and once more with a fault planted in what it uses. "Lines" are
those that had to be added to it. transformers, accelerate, Lightning and peft are used as pip
installs them, with a tiny model; nanoGPT and pytorch/examples are their loops written again with
small sizes, because pip has neither. Seconds are those of nine launches: the reference (rows of one
loop share it), its four legs, both candidates and their isolated legs; two cores of a shared
machine.

"""
COLUMNS = ("loop", "ranks", "lines", "clean", "bug", "with the bug", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="loops whose name contains one of these")
    parser.add_argument("--missing", action="store_true", help="only those that have no row yet")
    parser.add_argument("--keep", type=Path, help="folder for references, used again if there")
    options = parser.parse_args()
    table = RowTable(TABLE, HEADER, COLUMNS, [loop.name for loop in LOOPS])
    bad = []
    with tempfile.TemporaryDirectory(prefix="ttrace-loops-") as name:
        folder = options.keep or Path(name)
        for loop in LOOPS:
            wanted = options.names or [""]
            if not any(word.lower() in loop.name.lower() for word in wanted):
                continue
            if options.missing and loop.name in table.rows:
                continue
            row, fine = measure(loop, folder)
            table.set(row)
            print(" | ".join(row), "" if fine else "  <-- not as it should be", flush=True)
            if not fine:
                bad.append(loop.name)
    print(f"loops: not as they should be: {', '.join(bad)}" if bad else "loops: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
