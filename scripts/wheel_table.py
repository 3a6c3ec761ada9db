#!/usr/bin/env python3
"""Installs each wheel of dist/ into a fresh environment, where the system's libraries are hidden,
uses it, and writes docs/evidence/wheels.md.

    scripts/wheel_table.py [--torch 3.12=SITE-PACKAGES ...]

`scripts/make_wheels.py` makes the wheels. A Python has to train for the column "to a verdict": that
of this environment does, others with a torch that --torch names. Wheels for Arm are run by qemu.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import chromium
from wheels import interpreters
from wheels.arm64 import MINOR, Arm64Python
from wheels.build import ROOT
from wheels.contents import faults
from wheels.trial import BareSystem, borrow, environment, install

TABLE = ROOT / "docs" / "evidence" / "wheels.md"
RANK = ROOT / "tests" / "cli" / "tiny_rank.py"
PLAIN = ROOT / "zoo" / "ddp_toy.py"
COLUMNS = (
    "Python", "wheel", "MB", "auditwheel", "`pip install`", "two traces recorded and checked",
    "to a verdict on bits", "to one of a short `diff`", "to one of a whole `diff`", "first paint",
)  # fmt: skip
# Bounds of two noise reruns, and no rerun that proves or isolates anything.
SHORT = ("--no-first-step", "--reference-legs", "noise:2", "--legs", "none")
UNTRIED = ["-"] * 5
HEADER = """# Wheels

Written by `scripts/wheel_table.py` on {machine}, {cores} cores, on which {load:.0f} processes
wanted to run when it began: where that is more than the cores, seconds are longer than on an idle
machine. Each wheel passed what `scripts/wheels/contents.py` asks of it, and was installed by pip,
without an index, into a fresh environment in a mount namespace where libtbb, libhwy, libsimdjson
and libfmt are empty files; one for Arm was unpacked, and qemu ran Debian's Python with it. The
largest is {largest:.2f} MB; 6 are allowed.

*Two traces*: `ttrace record` twice and `ttrace check`, without torch. *To a verdict*: from `pip
install` on, for [a plain torch script](../../zoo/ddp_toy.py) compared with itself; *on bits* by
`ttrace record --bitwise` twice and `ttrace check --bitwise` (2 launches of the script); by a short
`ttrace diff {short}` (4 launches); and by a
whole `ttrace diff` (11: a plain loop is launched once for each rerun). OpenMP with one thread.
*First paint*: of the report that it wrote, in Chromium.

"""


def said_of(wheel: Path) -> str:
    """The tag that auditwheel gives it, with what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True
    )
    text = " ".join(done.stdout.split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    return found[1] if found else f"nothing: {(text + done.stderr)[:80]}"


def seconds(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def must(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    if done.returncode != code:
        said = (done.stdout + done.stderr)[-2000:]
        raise SystemExit(f"wheels: exit {done.returncode} and not {code}: {done.args}\n{said}")
    return done.stdout


def tried(
    interpreter: interpreters.Interpreter, wheel: Path, bare: BareSystem, torch: Path | None
) -> list[str]:
    """The last six cells."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = environment(interpreter.path, folder / "venv")
        ttrace = python.with_name("ttrace")
        took = install(wheel, python)
        began = time.monotonic()
        for name in ("reference", "candidate"):
            must(bare.run(ttrace, "record", "-o", folder / name, "--as-reference",
                          "--", python, RANK))  # fmt: skip
        must(bare.run(ttrace, "check", folder / "reference", folder / "candidate"))
        small = seconds(began)
        if torch is None:
            return [f"{took:.1f} s", small, "no torch for it here", "-", "-", "-"]
        borrow(python, torch)
        began = time.monotonic() - took
        for name in ("before", "after"):
            must(bare.run(ttrace, "record", "-o", folder / name, "--bitwise",
                          "--", python, PLAIN))  # fmt: skip
        must(bare.run(ttrace, "check", "--bitwise", folder / "before", folder / "after"))
        bits = seconds(began)
        script = shlex.join([str(python), str(PLAIN)])
        verdicts = []
        for name, options in (("short", SHORT), ("whole", ())):
            began = time.monotonic() - took
            must(bare.run(ttrace, "diff", "-o", folder / name, "--reference", script,
                          "--candidate", script, *options, seconds=900))  # fmt: skip
            verdicts.append(seconds(began))
        paint = first_paint(folder / "whole" / "index.html")
        return [f"{took:.1f} s", small, bits, *verdicts, paint]


def first_paint(page: Path) -> str:
    """Of the report, as a reader opens it; fails if the page says or asks for anything."""
    if not chromium.CHROMIUM:
        return "no chromium here"
    with chromium.started() as browser, chromium.opened(browser, page) as view:
        view.wait_for_selector("#grid tr")
        return f"{chromium.first_paint(view):.0f} ms"


def tried_by_qemu(wheel: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = Arm64Python(wheel, folder / "wheel")
        must(python.ttrace("version"))
        began = time.monotonic()
        for name in ("reference", "candidate"):
            # As the launcher does, which under qemu can start nothing.
            trace = folder / name
            trace.mkdir()
            (trace / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
            legs = "noise.1,noise.2,noise.3,replay"
            must(python.run(RANK, TTRACE_OUT=str(trace), TTRACE_LEG="real", TTRACE_LEGS=legs,
                            TTRACE_ITERATIONS="0:2"))  # fmt: skip
        must(python.ttrace("check", folder / "reference", folder / "candidate"))
        return ["unpacked", f"{seconds(began)} under qemu", "-", "-", "-", "-"]


def cells(wheel: Path) -> list[str]:
    return [f"`{wheel.name}`", f"{wheel.stat().st_size / 1e6:.2f}", said_of(wheel)]


def wheel_of(wheels: list[Path], tag: str, machine: str) -> Path | None:
    return next((w for w in wheels if tag in w.name and w.stem.endswith(machine)), None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", action="append", default=[], metavar="3.X=FOLDER")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", metavar="DIR")
    options = parser.parse_args()
    torches = {f"3.{sys.version_info[1]}": Path(sysconfig.get_path("purelib"))}
    torches |= {name: Path(path) for name, path in (t.split("=", 1) for t in options.torch)}
    wheels = sorted(options.wheels.glob("*.whl"))
    # As torchrun does. Threads that wait by asking are what a busy machine is slow with.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    bare = BareSystem()
    if bare.refusal:
        raise SystemExit(f"wheels: {bare.refusal}")
    wrong = [f"{wheel.name}: {fault}" for wheel in wheels for fault in faults(wheel, ROOT)]
    if wrong or not wheels:
        raise SystemExit("\n".join(wrong or [f"wheels: none in {options.wheels}"]))

    rows, load = [], os.getloadavg()[0]
    for minor in interpreters.MINORS:
        found = interpreters.find(minor)
        tag = f"cp3{minor}-cp3{minor}" if minor < interpreters.STABLE_ABI else "abi3"
        wheel = wheel_of(wheels, tag, "x86_64")
        if wheel is None:
            rows.append([f"3.{minor}", "not built: no interpreter here", *["-"] * 8])
        elif found is None:
            rows.append([f"3.{minor}", *cells(wheel), "no interpreter here: not tried", *UNTRIED])
        else:
            last = tried(found, wheel, bare, torches.get(f"3.{minor}"))
            rows.append([found.version, *cells(wheel), *last])
        print(rows[-1], flush=True)
    for wheel in (w for w in wheels if w.stem.endswith("aarch64")):
        version = "3.12 to 3.14" if "abi3" in wheel.name else f"3.{wheel.name.split('-cp3')[1]}"
        last = ["built, not run: Debian has no such Python for Arm", *UNTRIED]
        if f"cp3{MINOR}-cp3{MINOR}" in wheel.name:
            last = tried_by_qemu(wheel)
        rows.append([f"{version} (aarch64)", *cells(wheel), *last])
        print(rows[-1], flush=True)

    largest = max(wheel.stat().st_size for wheel in wheels) / 1e6
    machine = f"{platform.system()} {platform.machine()}, glibc {platform.libc_ver()[1]}"
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(
        HEADER.format(
            machine=machine,
            cores=len(os.sched_getaffinity(0)),
            load=load,
            largest=largest,
            short=" ".join(SHORT),
        )
        + "".join(f"| {' | '.join(line)} |\n" for line in lines)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
