#!/usr/bin/env python3
"""Makes a wheel of a build self-contained: its shared libraries and their licences inside, and the
tag of the systems that it runs on.

    scripts/repair_wheel.py build/dist/NAME.whl -o build/wheels
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from wheels.repair import repair


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    print(repair(options.wheel, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
