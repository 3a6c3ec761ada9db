"""The licences of what a wheel holds besides this project: libraries that auditwheel puts in, and
those of which only headers are used."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

# Debian's copyright files hold the texts, or name those that every system has.
PACKAGES = (
    "libhwy-dev",
    "libsimdjson-dev",
    "nlohmann-json3-dev",
    "libcli11-dev",
    "libfmt-dev",
    "libtbb-dev",
    "libxxhash-dev",
    "libtomlplusplus-dev",
)
_NANOBIND = ("nanobind", "robin-map")  # the module holds both


def _of_nanobind() -> list[str]:
    distribution = metadata.distribution("nanobind")
    files = {file.name: Path(str(file.locate())) for file in distribution.files or ()}
    map_header = files["robin_map.h"].read_text()
    notice = re.match(r"/\*\*?(.*?)\*/", map_header, re.DOTALL)
    if notice is None or "MIT License" not in notice[1]:
        raise SystemExit("wheels: nanobind's robin_map.h does not begin with its licence any more")
    return [files["LICENSE"].read_text(), notice[1]]


def names() -> list[str]:
    """Of the files that `texts` makes."""
    libraries = [package.removesuffix("-dev") for package in PACKAGES]
    return [f"{name}.txt" for name in (*libraries, *_NANOBIND)]


def texts() -> dict[str, str]:
    """What each says, by the name of its file. Fails where one is missing: a wheel without it may
    not be passed on."""
    found: list[str] = []
    for package in PACKAGES:
        path = Path("/usr/share/doc") / package / "copyright"
        if not path.is_file():
            raise SystemExit(
                f"wheels: {path} is missing, and a wheel may not be passed on without it; "
                f"apt-get install --reinstall {package}"
            )
        found.append(path.read_text())
    return dict(zip(names(), [*found, *_of_nanobind()], strict=True))
