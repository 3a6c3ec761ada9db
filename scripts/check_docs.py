#!/usr/bin/env python3
"""Fails if a document names a file of this project that does not exist, or if a page of
docs/evidence is not what its index says of it.

Only what looks like a path is checked: `src/trace/reader.h`, [text](CHANGELOG.md). What has a
placeholder in it (`rank-00003.r0/...`, DIR, *) is left alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = r"(?:src|include|python|zoo|tests|docs|scripts|cmake|bench|fuzz|\.ci)/"
CODE = re.compile(rf"`({FOLDERS}[\w./-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
EVIDENCE_ROW = re.compile(r"^\| \[[^]]+\]\((\w+\.md)\) \|.*\| ([^|]+) \|$", re.MULTILINE)
BY_HAND = "by hand"


def documents(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/*.md")])


def dead_paths(root: Path) -> Iterator[str]:
    for document in documents(root):
        text = document.read_text()
        named = [(root, path) for path in CODE.findall(text)]
        named += [(document.parent, path) for path in LINK.findall(text)]
        for base, path in named:
            if not (base / path).exists():
                yield f"{document.relative_to(root)}: names {path}, which does not exist"


def unproven_pages(root: Path) -> Iterator[str]:
    """Evidence is what can be made again: each page names who writes it, who names the page."""
    index = root / "docs" / "evidence" / "index.md"
    rows = dict(EVIDENCE_ROW.findall(index.read_text()))
    where = index.relative_to(root)
    for page in sorted(index.parent.glob("*.md")):
        if page != index and page.name not in rows:
            yield f"{where}: has no row for {page.name}: say what it shows and what makes it"
    for page, made_by in rows.items():
        writers = [root / path for path in CODE.findall(made_by)]
        if not writers and not made_by.startswith(BY_HAND):
            yield f"{where}: names no script that makes {page}"
        for writer in writers:
            names_it = writer.exists() and f"evidence/{page}" in as_path(writer.read_text())
            if writer.suffix == ".py" and not names_it:
                yield f"{where}: {writer.relative_to(root)} makes {page}, but does not name it"


def as_path(text: str) -> str:
    return text.replace('" / "', "/")


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    found = sorted({*dead_paths(root), *unproven_pages(root)})
    print("\n".join(found) or "documents: ok")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
