#!/usr/bin/env python3
"""Says whether a demo's result names the bug that was injected: RESULT BUG EXIT-CODE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sys.path.insert(0, str(ROOT / "zoo"))
    import bug_catalog

    path, name, code = sys.argv[1:]
    bug = bug_catalog.load(name)
    if int(code) != 1 or not Path(path).exists():
        print(f"demo: FAILED: ttrace exited {code}; a bug that is found gives 1")
        return 1
    wrong = bug_catalog.disagreements(json.loads(Path(path).read_text()), bug.EXPECT)
    if wrong:
        print(f"demo: FAILED: the injected bug is {bug.ID}, {bug.TITLE}, but " + "; ".join(wrong))
        return 1
    print(f"demo: ok: ttrace found {bug.ID}, {bug.TITLE} ({bug.SOURCE})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
