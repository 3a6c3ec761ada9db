"""What a finished wheel must be. Reads the file alone: nothing of it is installed or run."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from wheels import licenses

MEGABYTES = 6
# glibc 2.34 is that of RHEL 9, and older than those of Debian 12 and Ubuntu 22.04. See
# docs/install.md for why not an older one.
NEWEST_GLIBC = (2, 34)
# What PEP 600 lets such a wheel expect of the system (auditwheel's policy has the same).
NEWEST = {"GLIBC": NEWEST_GLIBC, "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
SYSTEM = re.compile(r"lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so\.\d+|ld-linux[\w-]*\.so\.\d")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _too_new(elf: ELFFile) -> Iterator[str]:
    """Symbols of versions that older systems lack: "hypot@GLIBC_2.35"."""
    needs = elf.get_section_by_name(".gnu.version_r")
    symbols = elf.get_section_by_name(".dynsym")
    versions = elf.get_section_by_name(".gnu.version")
    if not isinstance(needs, GNUVerNeedSection) or not isinstance(versions, GNUVerSymSection):
        return
    assert isinstance(symbols, SymbolTableSection)
    names = {
        entry["vna_other"]: entry.name for _, entries in needs.iter_versions() for entry in entries
    }
    for symbol, version in zip(symbols.iter_symbols(), versions.iter_symbols(), strict=True):
        name = names.get(version["ndx"], "")
        found = re.fullmatch(r"([A-Z]+)_([\d.]+)", name)
        if found and found[1] in NEWEST and _numbers(found[2]) > NEWEST[found[1]]:
            yield f"{symbol.name}@{name}"


def _needed(elf: ELFFile) -> list[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]


def _of_record(wheel: zipfile.ZipFile, info: str) -> Iterator[str]:
    record = f"{info}/RECORD"
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
    files = {name for name in wheel.namelist() if not name.endswith("/")}
    for name in sorted(files ^ rows.keys()):
        yield f"{name}: {'in RECORD alone' if name in rows else 'not in RECORD'}"
    for name in sorted(files & rows.keys() - {record}):
        data = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if rows[name] != [f"sha256={digest}", str(len(data))]:
            yield f"{name}: another digest or size than RECORD has"


def _of_libraries(wheel: zipfile.ZipFile, built_in: Path) -> Iterator[str]:
    libraries = [name for name in wheel.namelist() if re.search(r"\.so(\.\d+)*$", name)]
    if not any(Path(name).name.startswith("_native.") for name in libraries):
        yield "no ttrace/_native"
    inside = {Path(name).name for name in libraries}
    for name in libraries:
        data = wheel.read(name)
        elf = ELFFile(io.BytesIO(data))
        for needed in _needed(elf):
            if needed not in inside and not SYSTEM.fullmatch(needed):
                yield f"{name}: needs {needed}, which a system may not have"
        newer = sorted(set(_too_new(elf)))
        if newer:
            yield f"{name}: older systems lack {', '.join(newer)}"
        if str(built_in).encode() + b"/" in data:
            yield f"{name}: holds paths of the machine that built it ({built_in})"


def _of_tags(path: Path) -> Iterator[str]:
    platform = path.stem.rsplit("-", 1)[1]
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    if found is None or (int(found[1]), int(found[2])) > NEWEST_GLIBC:
        newest = "_".join(map(str, NEWEST_GLIBC))
        yield f"its tag is {platform}: not manylinux_{newest} or an older one"


def faults(path: Path, built_in: Path) -> list[str]:
    """What is wrong with a wheel that was built in the folder `built_in`; nothing if it may be
    passed on."""
    found = list(_of_tags(path))
    if path.stat().st_size > MEGABYTES * 1e6:
        found.append(f"{path.stat().st_size / 1e6:.1f} MB; at most {MEGABYTES} are wanted")
    with zipfile.ZipFile(path) as wheel:
        infos = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
        if len(infos) != 1:
            return [*found, f"has {len(infos)} .dist-info folders"]
        info = infos.pop()
        found += _of_record(wheel, info)
        found += _of_libraries(wheel, built_in)
        for name in ["LICENSE", *licenses.names()]:
            if f"{info}/licenses/{name}" not in wheel.namelist():
                found.append(f"{info}/licenses/{name} is missing")
    return found
