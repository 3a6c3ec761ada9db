#!/usr/bin/env python3
"""Writes docs/commands.md: what `ttrace --help` and the help of each command say.

scripts/command_reference.py            write it, after a change of an option
scripts/command_reference.py --check    fail if it is not what the installed ttrace says
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
TTRACE = Path(sys.executable).with_name("ttrace")

INTRODUCTION = """# Commands

Written by `scripts/command_reference.py` from the help of each command. Exit codes are those of
`diff(1)`: 0 within bounds, 1 diverged, 2 could not decide; `record` passes on those of its command.
How a whole comparison goes is told in [five minutes](start.md).
"""


def help_of(*command: str) -> str:
    done = subprocess.run([TTRACE, *command, "--help"], capture_output=True, text=True)
    if done.returncode != 0:
        words = " ".join(["ttrace", *command, "--help"])
        raise SystemExit(f"{words}: exit code {done.returncode}: {done.stderr.strip()}")
    # Not more than one empty line in a row, and none at the ends.
    lines = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def commands(top: str) -> list[str]:
    """Names under "Subcommands:" of the help of `ttrace` itself, in its order."""
    section = re.search(r"^Subcommands:\n((?:  .*\n)+)", top, re.MULTILINE)
    if section is None:
        raise SystemExit("ttrace --help lists no subcommands: has its form changed?")
    return re.findall(r"^  (\S+)", section[1], re.MULTILINE)


def page() -> str:
    top = help_of()
    parts = [INTRODUCTION, f"```\n{top}\n```\n"]
    for command in commands(top):
        text = help_of(command)
        what, _, rest = text.partition("\n")
        parts.append(f"## ttrace {command}\n\n{what}\n\n```\n{rest.strip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    now = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(now)
        return 0
    if PAGE.exists() and PAGE.read_text() == now:
        return 0
    where = PAGE.relative_to(ROOT)
    print(f"{where} is not what ttrace says of its commands: run scripts/command_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
