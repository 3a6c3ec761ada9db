#!/usr/bin/env python3
"""Runs clang-tidy on the project's C++ files, as many at a time as there are cores.

    scripts/tidy.py --all       every file of the compilation database
    scripts/tidy.py             files that changed since the published commit, or in the last one;
                                where git cannot tell, every file that is not a test

A file whose text, headers and checks have not changed since it was last clean is skipped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"
CLANG_TIDY = "clang-tidy-14"


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> set[Path] | None:
    """Files that differ from what is published, or None if git cannot tell."""
    for base in ("origin/HEAD", "origin/main", "HEAD~1"):
        published = git("merge-base", "HEAD", base)
        # In a fresh clone HEAD is the published commit itself, which says nothing.
        if published and published != git("rev-parse", "HEAD"):
            names = git("diff", "--name-only", published[0])
            names += git("ls-files", "--others", "--exclude-standard")
            return {ROOT / name for name in names}
    return None


def compiled_files() -> list[Path]:
    database = BUILD / "compile_commands.json"
    if not database.exists():
        sys.exit(f"tidy: {database} is missing; run scripts/configure.sh tidy")
    files = {Path(entry["file"]).resolve() for entry in json.loads(database.read_text())}
    return sorted(f for f in files if ROOT in f.parents and BUILD not in f.parents)


def select(everything: bool) -> list[Path]:
    files = compiled_files()
    if everything:
        return files
    changed = changed_files()
    if changed is None:
        return [f for f in files if not f.stem.endswith(("_test", "_bench"))]
    # A changed header is seen through the sources beside it.
    stems = {f.with_suffix("") for f in changed if f.suffix == ".h"}
    return [f for f in files if f in changed or f.with_suffix("") in stems]


def digest_of_shared_input() -> bytes:
    digest = hashlib.sha256()
    headers = sorted([*ROOT.glob("src/**/*.h"), *ROOT.glob("include/**/*.h")])
    for path in [ROOT / ".clang-tidy", *headers]:
        digest.update(path.read_bytes())
    return digest.digest()


def check(path: Path, stamp: Path) -> str:
    """Empty if clean, otherwise what clang-tidy said."""
    done = subprocess.run(
        [CLANG_TIDY, "--quiet", "-p", str(BUILD), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        stamp.touch()
        return ""
    return done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    stamps = BUILD / "stamps"
    stamps.mkdir(parents=True, exist_ok=True)
    shared = digest_of_shared_input()
    work = {}
    files = select(parser.parse_args().all)
    for path in files:
        stamp = stamps / hashlib.sha256(shared + path.read_bytes()).hexdigest()
        if not stamp.exists():
            work[path] = stamp
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [c for c in pool.map(check, work.keys(), work.values()) if c]
    print("\n".join(complaints).replace(f"{ROOT}/", ""))
    print(f"tidy: {len(files)} files, {len(work)} checked now, {len(complaints)} with findings")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
