#!/usr/bin/env python3
"""Prints the largest headroom of each test in each leg of results: how close clean runs come.

python scripts/headroom.py report/result.json [...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def largest(result: dict) -> dict[tuple[str, str], tuple[float, str]]:
    """(leg, statistic) -> headroom and the tensor that has it, of legs that are checkable."""
    found: dict[tuple[str, str], tuple[float, str]] = {}
    for tensor in result["tensors"]:
        name = f"{tensor['fqn'] or 'the model'} {tensor['role']} {tensor['arg']}".strip()
        if tensor["explained"]:
            continue
        for leg in tensor["legs"]:
            for test in leg["tests"] if leg["checkable"] else ():
                key = leg["leg"], test["statistic"]
                headroom = float(test["headroom"])
                if headroom > found.get(key, (-1.0, ""))[0]:
                    found[key] = headroom, name
    return found


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for path in sys.argv[1:]:
        result = json.loads(Path(path).read_text())
        print(f"{path}: {result['verdict']}, {result['tests']} tests")
        for (leg, statistic), (headroom, name) in sorted(largest(result).items()):
            print(f"  {leg:14} {statistic:11} {headroom:8.2g}  {name}")


if __name__ == "__main__":
    main()
