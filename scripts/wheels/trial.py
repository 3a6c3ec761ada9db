"""A wheel where a user would install it: a fresh virtual environment, on a system without the
libraries that it was built with."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

LIBRARIES = ("libtbb*.so*", "libhwy*.so*", "libsimdjson*.so*", "libfmt*.so*")
FOLDERS = ("/lib", "/usr/lib", "/usr/local/lib", "/opt/lib")
# An empty file in the place of each: whoever loads it fails, and names it.
_HIDE = 'count=$1; shift; for f in "${@:1:count}"; do mount --bind /dev/null "$f"; done; '
_NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])


def _installed() -> list[str]:
    """The files of the libraries on this system."""
    found = set()
    for folder in FOLDERS:
        for pattern in LIBRARIES:
            for inside in ("", "*-linux-gnu/"):
                found |= {path.resolve() for path in Path(folder).glob(inside + pattern)}
    return sorted(str(path) for path in found if path.is_file())


class BareSystem:
    """Runs commands in a mount namespace in which the system's libraries are empty files."""

    def __init__(self) -> None:
        self.refusal = ""  # why that cannot be done here, if it cannot
        self._hidden = _installed()
        for self._unshare in _NAMESPACES:
            done = self.run("true")
            if done.returncode == 0:
                return
            self.refusal = (
                done.stderr.strip().splitlines()[-1] if done.stderr else "no reason given"
            )
        self.refusal = f"no mount namespace may be made here: {self.refusal}"

    def run(
        self, *command: str | Path, cwd: Path | None = None, seconds: int = 300
    ) -> subprocess.CompletedProcess[str]:
        words = [*map(str, command)]
        shell = ["bash", "-ec", _HIDE + 'exec "${@:count + 1}"', "bash"]
        return subprocess.run(
            [*self._unshare, *shell, str(len(self._hidden)), *self._hidden, *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=cwd,
        )


def environment(interpreter: Path, folder: Path) -> Path:
    """A fresh virtual environment; its interpreter."""
    subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


def borrow(python: Path, packages: Path) -> None:
    """From now on the environment of `python` has the packages of another folder, such as torch,
    where it has none of its own. To be called once its own are there: pip looks there, too."""
    (site,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    (site / "borrowed.pth").write_text(f"{packages}\n")


def install(wheel: Path, python: Path) -> float:
    """With nothing but the file. Seconds. Fails with what pip says."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index",
         "--quiet", wheel],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"wheels: pip could not install {wheel.name}:\n{done.stderr}")
    return time.monotonic() - began
