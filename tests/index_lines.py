"""The lines of a trace's index.jsonl, for tests and scripts that look into one."""

from __future__ import annotations

import json
from pathlib import Path


def read_lines(index: Path) -> list[dict]:
    """All whole lines of it. A record has what its spec says, too."""
    lines = [json.loads(line) for line in index.read_text().split("\n")[:-1]]
    specs = {line["number"]: line for line in lines if line["type"] == "spec"}
    return [{**specs[line["spec"]], **line} if "spec" in line else line for line in lines]
