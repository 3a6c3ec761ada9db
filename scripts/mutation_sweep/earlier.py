"""Cells of role, precision and size in which an earlier sweep found a larger part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
# (role, precision, column)
Cell = tuple[str, str, int]
EARLIER = Path(__file__).with_name("earlier.md")


@dataclass
class Count:
    found: int = 0
    all: int = 0

    @property
    def part(self) -> float:
        return self.found / self.all

    def __str__(self) -> str:
        return f"{self.found}/{self.all}"


def read_earlier(text: str) -> tuple[list[str], dict[Cell, Count]]:
    """Names of the columns, and the cells of a table as docs/evidence/sweep.md has it."""
    header, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
    cells = {}
    for line in lines:
        name, precision, *texts = _columns(line)
        for index, cell in enumerate(texts):
            if cell:
                found, _, of = cell.partition("/")
                cells[name, precision, index] = Count(int(found), int(of))
    return _columns(header)[2:], cells


def compared(
    rows: list[Row], cell_of: Callable[[Row], Cell], describe: Callable[[Row], str]
) -> list[str]:
    """A section: how many cells there are, and each that is lower with its misses."""
    names, before = read_earlier(EARLIER.read_text())
    now: dict[Cell, list[Row]] = {}
    for row in rows:
        now.setdefault(cell_of(row), []).append(row)
    both = sorted(cell for cell in before if cell in now)
    lower = []
    for cell in both:
        count = Count(sum(row["detected"] for row in now[cell]), len(now[cell]))
        if count.part < before[cell].part:
            role, precision, column = cell
            lower.append(f"- {role}, {precision}, {names[column]}: {count}, before {before[cell]}")
            lower += [f"  - {describe(row)}" for row in now[cell] if not row["detected"]]
    return [
        "## Compared with the sweep before",
        "",
        "Seeds 1 and 2, other launches, judged before the judge was rebuilt. The new mechanisms",
        f"have rows of their own and are left out. {len(both)} cells are filled in both tables;",
        "in these a smaller part is found than before:",
        "",
        *(lower or ["None."]),
        "",
    ]


def _columns(line: str) -> list[str]:
    return [text.strip() for text in line.strip().strip("|").split("|")]
