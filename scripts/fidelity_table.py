#!/usr/bin/env python3
"""What sketches and digests find of what values do: planted faults and clean runs, judged with the
reference, the candidate or both condensed (`ttrace baseline`). Writes docs/fidelity.md.

    scripts/fidelity_table.py [--launches 6] [--seed 1]

The runs are those of scripts/sweep.py. Resumable: what was judged is in
sweep/fidelity/seed-N.jsonl.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep import rows  # noqa: E402
from mutation_sweep.launch import (  # noqa: E402
    BIN,
    LaunchFailed,
    Sweep,
    check_traces,
    record_candidate,
    record_reference,
)
from mutation_sweep.plan import plan  # noqa: E402

OUT = ROOT / "sweep" / "fidelity"
TABLE = ROOT / "docs" / "fidelity.md"
REFERENCE_LEGS = "replay,noise:3,fp32,fp32.noise:3"
CANDIDATE_LEGS = "replay,fp32"
BUCKETS = {"sketch": 1024, "small sketch": 256, "digest": 0}
ROWS = (
    ("full", "full"),
    ("sketch", "full"),
    ("full", "sketch"),
    ("sketch", "sketch"),
    ("small sketch", "small sketch"),
    ("full", "digest"),
)


def condensed(trace: Path, fidelity: str) -> Path:
    """The trace with this much left of it; made once."""
    if fidelity == "full":
        return trace
    out = trace.parent / fidelity.replace(" ", "-")
    if not out.exists():
        words = [str(BIN / "ttrace"), "baseline", str(trace), "-o", str(out)]
        done = subprocess.run(
            [*words, "--buckets", str(BUCKETS[fidelity])],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LaunchFailed(done.stderr)
    return out


def write_page() -> None:
    entries = rows.read(OUT)
    lines = [
        "# What sketches and digests find",
        "",
        "Written by `scripts/fidelity_table.py`: launches of the mutation sweep",
        "(`scripts/sweep.py`), judged by values and with either side condensed by `ttrace",
        "baseline` (sketches of 1,024 buckets, small ones of 256; tensors that are no larger stay",
        "values). Without isolated legs, which take values. Models are small (hidden 64), so that",
        "many tensors stay values: what is sketched are weights, gradients and the larger",
        "activations. Found: something is blamed in an iteration with a planted fault. Placed: the",
        "first culprit is where it was planted.",
    ]
    for precision, bf16 in (("bf16", True), ("fp32", False)):
        chosen = [entry for entry in entries if entry["bf16"] is bf16]
        if not chosen:
            continue
        launches = len({(entry["seed"], entry["launch"]) for entry in chosen})
        lines += ["", f"## {precision}", "", f"{launches} launches.", ""]
        lines += [f"| reference | candidate | {rows.HEAD} |", f"|---|---|{rows.HEAD_RULE}|"]
        for reference, candidate in ROWS:
            found = rows.cells(f"{reference}/{candidate}", chosen)
            lines.append(f"| {reference} | {candidate} | {found} |")
    TABLE.write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="leave out launches before this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=12, help="of a launch")
    parser.add_argument("--timeout", type=int, default=1500, help="seconds of one training command")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    options = parser.parse_args()
    folder = OUT / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder.with_suffix(".jsonl")
    sweep = Sweep(folder, options.iterations, REFERENCE_LEGS, CANDIDATE_LEGS, options.timeout)
    numbers = range(options.first, options.first + options.launches)
    for number in () if options.table else sorted(set(numbers) - rows.launches_of(results)):
        launch = plan(options.seed, number, options.iterations, 2)
        if not rows.is_judged(launch):
            continue
        try:
            record_reference(sweep, launch)
            record_candidate(sweep, launch)
            ways = {
                f"{reference}/{candidate}": functools.partial(
                    check_traces,
                    condensed(sweep.reference(launch) / "trace", reference),
                    condensed(sweep.candidate(launch) / "trace", candidate),
                )
                for reference, candidate in ROWS
            }
            entries = rows.judge(sweep, launch, ways)
        except LaunchFailed as failure:
            print(f"launch {number} failed: {failure}", file=sys.stderr)
            continue
        rows.add(results, entries)
        shutil.rmtree(sweep.candidate(launch), ignore_errors=True)
        print(f"launch {number} ({launch.topology}): {len(entries)} verdicts", flush=True)
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
