"""A table of a document whose rows are measured one at a time: those that are there stay until they
are measured again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class RowTable:
    """Rows by their first cell, in the order of `names`; other rows are forgotten."""

    def __init__(
        self, path: Path, header: str, columns: Sequence[str], names: Iterable[str]
    ) -> None:
        self._path, self._header, self._columns = path, header, columns
        self._names = list(names)
        self.rows: dict[str, list[str]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| ") and cells[0] in self._names and len(cells) == len(columns):
                self.rows[cells[0]] = cells

    def set(self, cells: list[str]) -> None:
        """Adds a row or replaces it, and writes the document."""
        self.rows[cells[0]] = cells
        lines = [self._columns, ["---"] * len(self._columns)]
        lines += [self.rows[name] for name in self._names if name in self.rows]
        text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        self._path.write_text(f"{self._header}{text}\n")
