"""The console script `ttrace`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ttrace import _native


def main() -> int:
    """Everything happens in C++; Python only says where its import hook and itself lie."""
    os.environ["TTRACE_HOOK_DIR"] = str(Path(__file__).resolve().parent / "hook")
    os.environ["TTRACE_PYTHON"] = sys.executable
    return _native.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
