#!/usr/bin/env python3
"""What sketches find of what values do: planted faults and clean runs, judged with the
reference, the candidate or both condensed (`ttrace baseline`). Writes docs/evidence/fidelity.md.

    scripts/fidelity_table.py [--launches 6] [--seed 1]

The runs are those of scripts/sweep.py. Resumable: what was judged is in
sweep/fidelity/seed-N.jsonl.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep import rows  # noqa: E402
from mutation_sweep.launch import BIN, LaunchFailed, Sweep, check_traces  # noqa: E402
from mutation_sweep.plan import Launch  # noqa: E402

OUT = ROOT / "sweep" / "fidelity"
TABLE = ROOT / "docs" / "evidence" / "fidelity.md"
REFERENCE_LEGS = "replay,noise:3,fp32,fp32.noise:3"
CANDIDATE_LEGS = "replay,fp32"
BUCKETS = {"sketch": 1024, "small sketch": 256}
ROWS = (
    ("full", "full"),
    ("sketch", "full"),
    ("full", "sketch"),
    ("sketch", "sketch"),
    ("small sketch", "small sketch"),
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


def ways(sweep: Sweep, launch: Launch) -> dict[str, rows.Check]:
    reference, candidate = sweep.reference(launch) / "trace", sweep.candidate(launch) / "trace"
    return {
        f"{r}/{c}": functools.partial(
            check_traces, condensed(reference, r), condensed(candidate, c)
        )
        for r, c in ROWS
    }


def page() -> list[str]:
    return [
        "# What sketches find",
        "",
        "Of faults planted by mechanism; of the bugs of the zoo, see",
        "[the table of each](fidelity_bugs.md). How close sketches are: [their",
        "accuracy](sketch_accuracy.md).",
        "",
        "Written by `scripts/fidelity_table.py`: launches of the mutation sweep",
        "(`scripts/sweep.py`), judged by values and with either side condensed by `ttrace",
        "baseline` (sketches of 1,024 buckets, small ones of 256; tensors that are no larger stay",
        "values). Without isolated legs, which take values. Models are small (hidden 64), so that",
        "many tensors stay values: what is sketched are weights, gradients and the larger",
        "activations. Found: something is blamed in an iteration with a planted fault. Placed: the",
        "first culprit is where it was planted. A difference of 1e-7 to 1e-6, the round-off of",
        "fp32, is within the rounding of a sketch itself: there small sketches leave clean tensors",
        "undecided, and planted ones of that size are not placed.",
        *rows.sections(OUT, "reference | candidate", {f"{r}/{c}": f"{r} | {c}" for r, c in ROWS}),
        "",
    ]


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    legs = (REFERENCE_LEGS, CANDIDATE_LEGS)
    # What is compared where it runs has no values to condense: such a "sketch" would be judged by
    # values.
    return rows.make_table(description, OUT, legs, ways, TABLE, page, ("--keep-values",))


if __name__ == "__main__":
    sys.exit(main())
