"""The first table of docs/case_study.md: each bug, and what rows of each release say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from case_study_plan import BUGS, NEWEST, OLDER, Bug, Cell, explained

BEGIN = "<!-- summary: begin (written by scripts/case_study.py) -->"
END = "<!-- summary: end -->"
_VERDICT, _CULPRIT, _SAID = 2, 5, 6
Rows = Mapping[str, Sequence[str]]


def write(document: Path, rows: Rows) -> None:
    text = document.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{_table(rows)}\n{END}{after}")


def _table(rows: Rows) -> str:
    columns = ("bug", "run", *OLDER, NEWEST, "corrected", "first culprit, classes")
    lines = [columns, ("---",) * len(columns)]
    lines += [_line(bug, rows) for bug in BUGS if "," not in bug.key]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(bug: Bug, rows: Rows) -> tuple[str, ...]:
    option, topology = bug.cells[0].split(": ")

    def said(version: str, fix: str | None = None) -> str:
        short = _in_short(rows.get(Cell(version, option, topology, fix).name))
        other = explained(version, bug.cells[0])
        # What is wrong there is something else.
        return f"{short} ({other.key})" if other and other != bug and not fix else short

    last = rows.get(Cell(bug.versions[-1], option, topology).name)
    return (
        f"[{bug.key}](#{bug.key.lower()})",
        bug.cells[0],
        *(said(version) for version in (*OLDER, NEWEST)),
        said(NEWEST, bug.fix) if bug.fix else f"in {_next_release(bug)}",
        last[_CULPRIT] if last else "",
    )


def _next_release(bug: Bug) -> str:
    releases = (*OLDER, NEWEST)
    return releases[releases.index(bug.versions[-1]) + 1]


def _in_short(row: Sequence[str] | None) -> str:
    if row is None:
        return "not run"
    verdict, said = row[_VERDICT], row[_SAID]
    if verdict == "none":
        return "cannot"
    count = re.search(r"(\d+) of (\d+) out of bounds", said)
    if verdict == "inconclusive" and count:
        return f"not judged, {count[1]} of {count[2]} out"
    return verdict
