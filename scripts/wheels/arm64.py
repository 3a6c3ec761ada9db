"""A wheel for 64-bit Arm on a machine of another kind: its interpreter is Debian's, run by qemu."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The compiler's own, which the kernel tests run with, too: glibc and libstdc++.
SYSTEM = "/usr/aarch64-linux-gnu"
MINOR = 11  # Debian 12 has no other Python
# Not beside the libraries that a wheel is built with: it has to bring them.
_FOLDER = ROOT / "build" / "cross" / "python"
_PACKAGES = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib",
             "zlib1g", "libexpat1")  # fmt: skip


class Arm64Python:
    """An interpreter in which the files of one wheel can be imported."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        script = ROOT / "scripts" / "arm64_libraries.sh"
        subprocess.run([script, "--into", _FOLDER, *_PACKAGES], check=True)
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
        libraries = ":".join(
            str(_FOLDER / place / "aarch64-linux-gnu") for place in ("lib", "usr/lib")
        )
        # The program alone sees this one: qemu itself is of this machine.
        self._command = ["qemu-aarch64", "-L", SYSTEM, "-E", f"LD_LIBRARY_PATH={libraries}",
                         _FOLDER / "usr" / "bin" / "python3.11"]  # fmt: skip
        self._environment = {
            **os.environ,
            "PYTHONHOME": str(_FOLDER / "usr"),
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments. It cannot start processes: they would need qemu, too."""
        return subprocess.run(
            [*self._command, *words],
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def ttrace(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "ttrace._cli", *words)
