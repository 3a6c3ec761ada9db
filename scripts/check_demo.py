#!/usr/bin/env python3
"""Says whether a demo's result names the bug that was injected: RESULT BUG EXIT-CODE."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def disagreements(result: dict, expected: dict) -> list[str]:
    """What in the first culprit is not as the zoo says that it must be."""
    if not result["culprits"]:
        return ["no culprit was found"]
    first = result["culprits"][0]
    wrong = []
    if not any(re.fullmatch(pattern, first["fqn"]) for pattern in expected["fqn"]):
        wrong.append(f"it names {first['fqn']}")
    for key in ("direction", "stage"):
        if first[key] != expected[key]:
            wrong.append(f"{key} is {first[key]}, not {expected[key]}")
    letters = [found["class"] for found in first["classes"]]
    if not set(letters) & set(expected["classes"]):
        wrong.append(f"classes are {letters}, not of {expected['classes']}")
    return wrong


def main() -> int:
    sys.path.insert(0, str(ROOT / "zoo"))
    import bug_catalog

    path, name, code = sys.argv[1:]
    bug = bug_catalog.load(name)
    if int(code) != 1 or not Path(path).exists():
        print(f"demo: FAILED: ttrace exited {code}; a bug that is found gives 1")
        return 1
    wrong = disagreements(json.loads(Path(path).read_text()), bug.EXPECT)
    if wrong:
        print(f"demo: FAILED: the injected bug is {bug.ID}, {bug.TITLE}, but " + "; ".join(wrong))
        return 1
    print(f"demo: ok: ttrace found {bug.ID}, {bug.TITLE} ({bug.SOURCE})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
