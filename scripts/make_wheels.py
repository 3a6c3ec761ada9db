#!/usr/bin/env python3
"""Builds self-contained wheels for every CPython of this machine from 3.10 on: one for each before
3.12, one on the stable ABI for 3.12 and all that follow. Writes them to dist/, and the sources.

    scripts/make_wheels.py                 for this machine and for 64-bit Arm
    scripts/make_wheels.py --here          for this machine alone
    scripts/make_wheels.py --only 3.11     of these versions alone

An interpreter that is not here is said, and its wheel is not made. Each wheel is looked at: tag,
size, what it needs of the system, licences, RECORD. Ends with 1 if one may not be passed on. Needs
the packages of requirements-dev.txt and, for Arm, what scripts/arm64_libraries.sh installs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from wheels import interpreters
from wheels.build import ROOT, build, source_distribution
from wheels.contents import faults
from wheels.repair import repair

ARM64_PACKAGES = (
    *("libhwy-dev", "libhwy1", "libsimdjson-dev", "libsimdjson14", "libfmt-dev", "libfmt9"),
    # What CMake's files of TBB name has to be there, used or not.
    *("libtbb-dev", "libtbb12", "libtbbmalloc2", "libtbbbind-2-5", "libxxhash-dev"),
    "libtomlplusplus-dev",
)
ARM64_LIBRARIES = f"{ROOT}/build/cross/root/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib"


def to_build(minors: list[int]) -> Iterator[interpreters.Interpreter]:
    """One interpreter for each tag, the oldest; the others are said."""
    tags = set()
    for minor in minors:
        found = interpreters.find(minor)
        if found is None:
            covered = minor > interpreters.STABLE_ABI and any("abi3" in tag for tag in tags)
            print(
                f"Python 3.{minor}: no interpreter with headers here (python3.{minor} on PATH, "
                f"~/.pyenv/versions/3.{minor}.*): "
                + ("not tried; the abi3 wheel is for it, too" if covered else "no wheel")
            )
        elif found.tag not in tags:
            tags.add(found.tag)
            yield found


def make(interpreter: interpreters.Interpreter, out: Path, *, arm64: bool) -> bool:
    """Whether the wheel may be passed on."""
    began = time.monotonic()
    built = build(interpreter, ROOT / "build" / "unrepaired", arm64=arm64)
    wheel = repair(built, out, ARM64_LIBRARIES if arm64 else None)
    seconds, size = time.monotonic() - began, wheel.stat().st_size / 1e6
    print(f"Python {interpreter.version}: {wheel.name}, {size:.2f} MB, {seconds:.0f} s", flush=True)
    found = faults(wheel, ROOT)
    for fault in found:
        print(f"  {fault}")
    return not found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--here", action="store_true", help="not for 64-bit Arm")
    parser.add_argument("--only", nargs="+", metavar="3.X", help="of these versions")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "dist", metavar="DIR")
    options = parser.parse_args()
    versions = {f"3.{minor}": minor for minor in interpreters.MINORS}
    unknown = set(options.only or ()) - versions.keys()
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: wheels are for {', '.join(versions)}")
    chosen = [minor for name, minor in versions.items() if name in (options.only or versions)]

    good = True
    found = list(to_build(chosen))
    if found:
        print(source_distribution(found[0], options.out).name)
    for interpreter in found:
        good &= make(interpreter, options.out, arm64=False)
    if not options.here:
        subprocess.run([ROOT / "scripts" / "arm64_libraries.sh", *ARM64_PACKAGES], check=True)
        for interpreter in found:
            good &= make(interpreter, options.out, arm64=True)
    if not found:
        print("no wheel: none of these interpreters is here", file=sys.stderr)
    return 0 if good and found else 1


if __name__ == "__main__":
    sys.exit(main())
