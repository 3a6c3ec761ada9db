#!/usr/bin/env python3
"""What each of the reference's legs is good for: planted faults that are found, and clean runs that
come close to a bound, with fewer legs than the reference has. Writes docs/evidence/legs.md.

    scripts/leg_table.py [--launches 6] [--seed 1]

The references and candidates are those of scripts/sweep.py, each recorded once, with all legs that
a row names; every row judges the same traces (`ttrace check --legs`). Resumable: what was judged is
in sweep/legs/seed-N.jsonl.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep import rows  # noqa: E402
from mutation_sweep.launch import Sweep, check  # noqa: E402
from mutation_sweep.plan import Launch  # noqa: E402

OUT = ROOT / "sweep" / "legs"
TABLE = ROOT / "docs" / "evidence" / "legs.md"
ALL = "replay,noise:3,fp32,fp32.noise:3,isolated.noise:2,fp32.isolated.noise:2"
CANDIDATE_LEGS = "replay,fp32,isolated,fp32.isolated"
DEFAULT = "replay,noise:3,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:1"
# Steps in bf16 that one in fp32 takes on a CPU without instructions for bf16; the other way round
# an fp32 run has no fp32 legs.
FP32_STEPS = 3
# Legs of low precision, and those in fp32: real and replay are always there.
ROWS = (
    ALL,
    "replay,noise:2,fp32,fp32.noise:2,isolated.noise:2,fp32.isolated.noise:2",
    "replay,noise:3,fp32,fp32.noise:3,isolated.noise:1,fp32.isolated.noise:1",
    DEFAULT,
    "replay,noise:3,fp32,fp32.noise:3,isolated.noise:2",
    "replay,noise:2,fp32,fp32.noise:2,isolated.noise:1,fp32.isolated.noise:1",
    "replay,noise:1,fp32,fp32.noise:1,isolated.noise:1,fp32.isolated.noise:1",
    "replay,noise:3,fp32,fp32.noise:3",
    "replay,noise:3,fp32,isolated.noise:2",
    "replay,noise:3,isolated.noise:2",
    "replay,noise:3",
    "replay,noise:1",
)


@dataclass(frozen=True)
class Cost:
    """Steps of an iteration with these legs, the real one included."""

    low: int
    fp32: int

    @staticmethod
    def of(legs: str) -> Cost:
        low, fp32 = 1, 0
        for word in legs.split(","):
            name, _, count = word.partition(":")
            if name.startswith("fp32"):
                fp32 += int(count or 1)
            else:
                low += int(count or 1)
        return Cost(low, fp32)


def page() -> list[str]:
    costs = {legs: Cost.of(legs) for legs in ROWS}
    return [
        "# What the legs of a reference are good for",
        "",
        "Written by `scripts/leg_table.py`: launches of the mutation sweep (`scripts/sweep.py`),",
        "each recorded once and judged by fewer and fewer of the reference's legs (`ttrace check",
        "--legs`). Found: something is blamed in an iteration with a planted fault. Placed: the",
        "first culprit is where the fault was planted. Clean flagged: false alarms. Headroom is",
        "how close the worst tensor of a clean iteration comes to its bound. A step in fp32 counts",
        f"as {FP32_STEPS} in bf16, as on the CPUs where this was run; on an accelerator it is 10",
        "and more.",
        "",
        "What finds faults is that there is noise for a leg at all, in the precision and the depth",
        "in which a fault shows: fp32 noise, and one module deep. How many legs there are of a",
        "kind matters little here; more tighten bounds of tensors of few elements and of common",
        "factors (docs/tolerance.md). A reference has by default",
        "",
        f"    {DEFAULT}",
        "",
        "that is all kinds, and as many legs as 20 steps allow, those in low precision first.",
        *rows.sections(
            OUT,
            "legs of the reference | steps: low + fp32 | steps of bf16",
            {
                legs: f"`{legs}` | {cost.low} + {cost.fp32} | {cost.low + FP32_STEPS * cost.fp32}"
                for legs, cost in costs.items()
            },
        ),
        "",
    ]


def ways(sweep: Sweep, launch: Launch) -> dict[str, rows.Check]:
    return {legs: functools.partial(check, sweep, launch, legs=legs) for legs in ROWS}


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    return rows.make_table(description, OUT, (ALL, CANDIDATE_LEGS), ways, TABLE, page)


if __name__ == "__main__":
    sys.exit(main())
