"""The console script `ttrace`."""

from __future__ import annotations

import sys

from ttrace import _native


def main() -> int:
    """Everything happens in C++; Python only finds the way there."""
    return _native.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
