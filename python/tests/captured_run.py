"""Running a script of the zoo under capture, without the launcher."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ttrace
from index_lines import read_lines
from launch_ranks import launcher

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path(ttrace.__file__).resolve().parent / "hook"


def run(arguments, *, processes=1, script="zoo/train_gpt.py", **variables):
    """Output lines of the script that say something about its numbers, and all of its output."""
    command = launcher(processes if processes > 1 else 0)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if "TTRACE_OUT" in variables:
        folder = Path(variables["TTRACE_OUT"])
        folder.mkdir()
        (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
        paths = [str(HOOK), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update({name: str(value) for name, value in variables.items()})
    done = subprocess.run(
        [*command, str(ROOT / script), *arguments],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    lines = sorted(re.findall(r"^(?:step|state|iteration) .*$", done.stdout, re.MULTILINE))
    assert lines, done.stdout
    return lines, done.stdout


def compared(folder, reference, candidate):
    """The result of a check of two traces, which is written to `folder`."""
    command = [sys.executable, "-m", "ttrace._cli", "check", "-o", str(folder)]
    subprocess.run([*command, str(reference), str(candidate)])
    return json.loads((Path(folder) / "result.json").read_text())


def index(folder, rank=0):
    return read_lines(Path(folder) / f"rank-{rank:05d}.r0" / "index.jsonl")
