"""The CPython interpreters of this machine, one for each minor version that wheels are for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MINORS = range(10, 15)
# From this one on there is one wheel for all: nanobind needs the stable ABI of 3.12.
STABLE_ABI = 12

# -I: what lies in the working folder or in the environment is none of its own.
_ASK = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "implementation": platform.python_implementation(),
    "version": platform.python_version(),
    "minor": sys.version_info[1],
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "include": sysconfig.get_path("include"),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: str  # "3.11.7"
    minor: int
    include: Path

    @property
    def tag(self) -> str:
        """The tags of its own wheel, or of the one that is for it and all newer ones."""
        if self.minor < STABLE_ABI:
            return f"cp3{self.minor}-cp3{self.minor}"
        return f"cp3{STABLE_ABI}-abi3"


def _candidates(minor: int) -> Iterator[Path]:
    name = f"python3.{minor}"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder) / name
    yield from sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"), reverse=True)


def _asked(path: Path, minor: int) -> Interpreter | None:
    """What can build modules for this version, or None: a shim of pyenv ends with an error where
    its version is not chosen, and a Python without headers compiles nothing."""
    if not os.access(path, os.X_OK):
        return None
    try:
        done = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60)
        said = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    include = Path(said["include"])
    fits = said["implementation"] == "CPython" and said["minor"] == minor
    if not fits or said["free_threaded"] or not (include / "Python.h").is_file():
        return None
    return Interpreter(path, said["version"], minor, include)


def find(minor: int) -> Interpreter | None:
    """The first on PATH that can build, else one of pyenv's."""
    found = (_asked(path, minor) for path in _candidates(minor))
    return next((interpreter for interpreter in found if interpreter), None)
