"""Commands that tests run at the project's root."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str, seconds: int = 2400) -> str:
    """Runs a command at the project's root; fails with the end of its output if it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-60:])
        pytest.fail(f"{' '.join(command)[:200]}: exit {done.returncode}\n{tail}", pytrace=False)
    return done.stdout
