#!/usr/bin/env python3
"""Captures loops that nobody here designed, clean and with a bug, and writes docs/loops.md.

    .venv/bin/python -m pip install -c <(grep '^torch==' requirements-dev.txt) \\
        -r requirements-loops.txt
    .venv/bin/python scripts/loops.py                 # all; some minutes each
    .venv/bin/python scripts/loops.py nanogpt peft    # some; the others' rows stay

Each loop runs as a reference (one process; a pair of ranks where its model needs a device mesh), as
a candidate of more ranks, and as that candidate with a fault. Traces are deleted.
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

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/loops.md"
PYTHON = sys.executable
TORCHRUN = f"{PYTHON} -m torch.distributed.run --standalone"
REFERENCE_LEGS = "replay,noise:2,isolated.noise:1"
BUG_WORDS = {
    "local_gradients": "gradients are not averaged",
    "unsummed_row": "a row-parallel linear's sum is halved",
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
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip


def outcome(folder: Path, done: subprocess.CompletedProcess[str]) -> str:
    """The verdict in a few words."""
    results = sorted(folder.rglob("result.json"))
    if not results:
        tail = (done.stdout + done.stderr).strip().splitlines()[-1:]
        return f"no result ({tail[0][:60] if tail else done.returncode})"
    result = json.loads(results[0].read_text())
    if result["verdict"] != "diverged":
        return result["verdict"]
    first = result["culprits"][0]
    letters = ", ".join(found["class"] for found in first["classes"])
    place = first["fqn"] or "the model itself"
    return f"diverged at `{place}` {first['role']} ({letters or 'no class'})"


def measure(loop: Loop) -> list[str]:
    script = f"zoo/loops/{loop.script}.py"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ttrace-loops-") as name:
        folder = Path(name)
        reference = str(folder / "reference")
        done = ttrace(
            "record", "-o", reference, "--legs", REFERENCE_LEGS, "--",
            "/bin/sh", "-c", command(loop.ranks[0], script, loop.reference),
        )  # fmt: skip
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="\n")
        verdicts = []
        for kind, words in (
            ("clean", (script, loop.candidate)),
            ("bug", ("zoo/loops/with_bug.py", loop.bug, script, loop.candidate)),
        ):
            out = folder / kind
            done = ttrace(
                "diff", "-o", str(out), "--reference-trace", reference, "--legs", "isolated",
                "--candidate", command(loop.ranks[1], *words),
            )  # fmt: skip
            verdicts.append(outcome(out, done))
            shutil.rmtree(out, ignore_errors=True)
    seconds = round(time.monotonic() - begin)
    return [
        loop.name,
        f"{loop.ranks[0]} and {loop.ranks[1]}",
        str(loop.lines),
        verdicts[0],
        BUG_WORDS[loop.bug],
        verdicts[1],
        str(seconds),
    ]


HEADER = """# Training loops of other people

Written by `scripts/loops.py`. Each loop is captured as a reference and as a candidate of more
ranks, and once more with a fault planted in what it uses. "Lines" are those that had to be added to
it. transformers, accelerate and peft are used as pip installs them, with a tiny random model;
nanoGPT and pytorch/examples are their loops written again with small sizes, because pip has
neither. Seconds are for everything, legs included, on two busy cores.

"""
COLUMNS = ("loop", "ranks", "lines", "clean", "bug", "with the bug", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="loops whose name contains one of these")
    wanted = parser.parse_args().names
    rows: dict[str, list[str]] = {}
    if TABLE.exists():
        for line in TABLE.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| ") and cells[0] in {loop.name for loop in LOOPS}:
                rows[cells[0]] = cells
    for loop in LOOPS:
        if wanted and not any(word.lower() in loop.name.lower() for word in wanted):
            continue
        rows[loop.name] = measure(loop)
        print(" | ".join(rows[loop.name]), flush=True)
        table = [COLUMNS, ["---"] * len(COLUMNS)]
        table += [rows[known.name] for known in LOOPS if known.name in rows]
        text = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
        TABLE.write_text(f"{HEADER}{text}\n")
    clean = [cells for cells in rows.values() if cells[3] in ("within", "bitwise_equal")]
    return 0 if len(clean) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
