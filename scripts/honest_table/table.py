"""Writes docs/evidence/honest.md from the results."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from .draw import HALVES, Draw

Line = dict[str, Any]
CLEAN = ("within", "bitwise_equal")
ACCUSED = ("diverged", "crashed")
# What a candidate does wrong with its data may be replaced by the reference's data: then a note.
OF_DATA = ("rows", "same", "padding", "lengths", "labels", "pairs", "noise")
# Where each fault is: the stage of the first place that must be named.
STAGES = {
    **dict.fromkeys(OF_DATA, ("input", "compute")),
    "factor": ("compute", "communication", "optimizer"),
    # Half of what a sum should be is half a loss as well as a missing factor of the reduction.
    "hook": ("communication", "compute"),
    "statistic": ("compute", "input"),
}

SAID_OF_FAULTS = ("placed", "found elsewhere", "named", "replaced", "open", "missed")
# Reasons and notes of an open verdict that name whose rows, or which input, are other ones.
NAMES_DATA = (
    "rows that the reference does not read",
    "of other values for the same rows",
    "are not the reference's and were replaced",
)

HEAD = """# Honest programs

Written by `scripts/honest.py`. Each row is a training loop of `zoo/honest`, as people write such
loops, with a way in which its global batch is dealt out among ranks, padded and averaged. All were
drawn at random (`scripts/honest_table/draw.py`) and frozen in `zoo/honest/draws.json`. In float64
and without capture one rank and several compute the same losses and parameters to 1e-9 of their
size (`scripts/honest.py --verify`), so nothing is wrong in any of them: who is accused is a false
alarm, and what is left open is a kind that cannot be judged yet, with its reason.

Half A is the development half. Half B is held out: it is run once half A accuses nobody.
Headroom is the largest value of a test over its bound; above 1 is flagged.
"""

FAULT_HEAD = """
## Faults of the same programs

A draw with one fault in the candidate. "Found" is a divergence; "placed" means that the first
place is of the right stage (%s).
"Named" is an open verdict that names the rank that reads other rows, or the input that
holds other values: an honest loop whose sampler or noise is seeded otherwise looks the same.
"Replaced" is a fault of data that the candidate did not come to use,
because it was given the reference's data, with a note that its own differed.
"""


UNCHANGED_HEAD = """
## Unchanged by capture

Written by `scripts/honest.py --unchanged`: loops that print hashes, alone and under `ttrace record`
with a replay and a noise leg, on so many ranks. Losses, the gradients that each step finds, the
parameters that are left and the states of all random generators are the same, bit by bit.
"""


def write_table(path: Path, draws: list[Draw], lines: list[Line], recorded: list[Line]) -> None:
    by_draw = {(line["name"], line["fault"]): line for line in lines}
    text = [HEAD, *_totals(draws, by_draw)]
    text += ["", "| program | options | verdict | first place, or why open | headroom |"]
    text += ["|---|---|---|---|---|"]
    for draw in draws:
        line = by_draw.get((draw.name, ""))
        if line:
            cells = (f"{draw.name} {draw.kind}", draw.options(), line["verdict"], _why(line))
            text.append(f"| {' | '.join(cells)} | {_headroom(line)} |")
    text += _faults(draws, by_draw)
    text += _unchanged(recorded)
    path.write_text("\n".join(text) + "\n")


def _totals(draws: list[Draw], by_draw: dict) -> list[str]:
    text = ["| half | drawn | run | within | accused | open | faults run | of these "]
    text[0] += f"{' | '.join(SAID_OF_FAULTS)} |"
    text.append("|---" * (7 + len(SAID_OF_FAULTS)) + "|")
    for half in HALVES:
        of_half = [draw for draw in draws if draw.half == half]
        run = [by_draw[draw.name, ""] for draw in of_half if (draw.name, "") in by_draw]
        kinds = Counter(state(line) for line in run)
        judged = [
            judged_fault(draw, by_draw[draw.name, draw.fault])
            for draw in of_half
            if draw.fault and (draw.name, draw.fault) in by_draw
        ]
        cells = [half, len(of_half), len(run), *(kinds[k] for k in ("within", "accused", "open"))]
        cells += [len(judged), *(judged.count(said) for said in SAID_OF_FAULTS)]
        text.append(f"| {' | '.join(map(str, cells))} |")
    return text


def state(line: Line) -> str:
    """Of an honest program."""
    if line["verdict"] in CLEAN:
        return "within"
    return "accused" if line["verdict"] in ACCUSED else "open"


def judged_fault(draw: Draw, line: Line) -> str:
    if line["verdict"] == "diverged":
        return "placed" if line.get("stage") in STAGES[draw.fault] else "found elsewhere"
    if line["verdict"] not in CLEAN:
        said = " ".join((line.get("reason", ""), *line.get("notes", [])))
        is_named = any(words in said for words in NAMES_DATA)
        return "named" if is_named and draw.fault in OF_DATA else "open"
    notes = " ".join(line.get("notes", []))
    return "replaced" if draw.fault in OF_DATA and "data differed" in notes else "missed"


def _faults(draws: list[Draw], by_draw: dict) -> list[str]:
    by_stages: dict[tuple[str, ...], list[str]] = {}
    for fault, names in STAGES.items():
        by_stages.setdefault(names, []).append(fault)
    stages = "; ".join(f"{', '.join(of)}: {' or '.join(names)}" for names, of in by_stages.items())
    text = [FAULT_HEAD % stages, "| program | options | fault | said | |", "|---|---|---|---|---|"]
    for draw in draws:
        line = by_draw.get((draw.name, draw.fault)) if draw.fault else None
        if line:
            cells = (f"{draw.name} {draw.kind}", draw.options(), draw.fault)
            said = f"{line['verdict']}: {_why(line)}"
            text.append(f"| {' | '.join(cells)} | {said} | {judged_fault(draw, line)} |")
    return text


def _unchanged(recorded: list[Line]) -> list[str]:
    """Of each program on how many ranks it computed the same."""
    if not recorded:
        return []
    text = [UNCHANGED_HEAD, "| program | the same on | changed on |", "|---|---|---|"]
    for kind in sorted({line["kind"] for line in recorded}):
        of_kind = [line for line in recorded if line["kind"] == kind]
        cells = [
            ", ".join(str(line["ranks"]) for line in of_kind if bool(line["difference"]) == changed)
            for changed in (False, True)
        ]
        text.append(f"| {kind} | {' | '.join(cells)} |")
    return text


def _why(line: Line) -> str:
    if line["verdict"] in CLEAN:
        return ""
    if line.get("culprits"):
        letters = ", ".join(line.get("classes", [])) or "no class"
        return f"`{line['culprits'][0].strip()}` ({letters})"
    return re.sub(r"[|\n]", " ", line.get("reason", ""))[:160]


def _headroom(line: Line) -> str:
    largest = line.get("largest")
    return f"{largest['headroom']:.2f}" if largest else ""
