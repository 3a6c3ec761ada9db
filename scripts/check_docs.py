#!/usr/bin/env python3
"""Fails if a document names a file of this project that does not exist.

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


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    found = sorted(set(dead_paths(root)))
    print("\n".join(found) or "documents: ok")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
