"""Runs this project's build for one interpreter and one kind of machine."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from wheels.interpreters import STABLE_ABI, Interpreter

ROOT = Path(__file__).resolve().parent.parent.parent
# What the build imports, all of it plain Python: taken from the environment that this runs in, so
# that no interpreter needs packages of its own. The last three: before 3.11 only.
TOOLS = ("scikit-build-core", "nanobind", "packaging", "pathspec", "exceptiongroup", "tomli",
         "typing-extensions")  # fmt: skip
_HOOK = """
import sys
from scikit_build_core import build
make = getattr(build, sys.argv[1])
print(make(sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:])))
"""


def _tools(folder: Path) -> Path:
    """A folder of links to TOOLS and nothing else. scikit-build-core builds anew what another
    scikit-build-core has built: by a link it is the same one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOOLS:
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            raise SystemExit(
                f"wheels: {name} is not installed for {sys.executable}; "
                "scripts/setup_python.sh installs what requirements-dev.txt names"
            ) from None
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link, target = folder / top, Path(str(metadata.distribution(name).locate_file(top)))
            if not (link.is_symlink() and link.readlink() == target):
                link.unlink(missing_ok=True)
                link.symlink_to(target)
    return folder


def _run(
    hook: str, interpreter: Interpreter, out: Path, settings: list[str], changed: dict[str, str]
) -> Path:
    """What a build front end does, but for downloading the tools anew each time."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(_tools(ROOT / "build" / "wheel_tools")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CMAKE_GENERATOR": "Ninja",
        **changed,
    }
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count()))
    done = subprocess.run(
        [interpreter.path, "-c", _HOOK, hook, out, *settings],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise SystemExit(f"wheels: {hook} for Python {interpreter.version} failed:\n{said}")
    return out / done.stdout.split()[-1]


def build(interpreter: Interpreter, out: Path, *, arm64: bool = False) -> Path:
    """A wheel as the build makes it, not repaired, in `out`."""
    if not arm64:
        return _run("build_wheel", interpreter, out, [], {})
    # By these scikit-build-core knows for which machine a wheel is.
    changed = {
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "cmake" / "aarch64.cmake"),
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }
    if interpreter.minor < STABLE_ABI:
        suffix = f".cpython-3{interpreter.minor}-aarch64-linux-gnu.so"
        changed["SETUPTOOLS_EXT_SUFFIX"] = suffix
    folder = ROOT / "build" / "wheel_aarch64"
    return _run("build_wheel", interpreter, out, [f"build-dir={folder}"], changed)


def source_distribution(interpreter: Interpreter, out: Path) -> Path:
    """What pip compiles where no wheel fits."""
    return _run("build_sdist", interpreter, out, [], {})
