#!/usr/bin/env python3
"""Compares releases of megatron-core, clean and with bugs, and writes docs/evidence/versions.md.

    .venv/bin/python scripts/versions.py            # all; hours on two cores
    .venv/bin/python scripts/versions.py --only '0.14.*CP2'  # rows by a regular expression
    .venv/bin/python scripts/versions.py --missing  # those that have no row yet

Each release lies in a folder of its own (build/versions/), beside the one torch that there is. No
clean run may be called diverged but those that the document explains, and every bug has to be found
where the zoo says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version as installed_version
from pathlib import Path

from row_table import RowTable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import runs  # noqa: E402
from cases import bug_catalog  # noqa: E402
from matrix import worst  # noqa: E402

TABLE = ROOT / "docs/evidence/versions.md"
FOLDERS = ROOT / "build/versions"
PACKAGE = "megatron-core"
VERSIONS = ("0.12.3", "0.13.1", "0.14.0", "0.15.3", "0.16.1")
HEADER = """# Releases of megatron-core

Written by `scripts/versions.py`: `zoo/train_gpt.py` on each release, two iterations in fp32 of one
process as the reference and of two as the candidate, clean and with [bugs of the
zoo](../../zoo/README.md). Compared: tensors. Headroom is error / bound of the worst tensor of the
run itself: at most 1 where nothing is wrong. Probes are names that megatron-core or torch does not
promise (`private_names.py` of an adapter): each is looked up when capture begins and kept in
`meta.json`, and a note names one that is missing and says what is lost. Releases and rows
that are not here were not run. The full matrix of 0.16.1 is [another table](matrix.md).

What differs, as far as these runs meet it:

* **0.12.3** has no distributed optimizer without TransformerEngine: its step ends in the error that
  the row shows. Under context parallelism its schedule multiplies a loss by the size of the group
  so that a loss function has to count the tokens of all of its ranks, which the trainer of the zoo
  does there. Virtual
  stages are told their number by a global variable.
* **0.12.3 and 0.13.1** tell the model alone of overlapped gathering, not the optimizer.
* **0.12.3 to 0.14.0** have no attention sinks and no window that skips layers.
* **0.12.3 to 0.15.3** draw the weights of a gated `linear_fc1` as if it were one matrix: two
  tensor-parallel ranks begin as another model than one process does. Both runs are given the
  reference's weights, so that nothing is flagged. They have no gate of shared experts.

"""
COLUMNS = (
    "run",
    "as expected",
    "verdict",
    "compared",
    "headroom",
    "first culprit",
    "probes missing",
    "said",
)

STEPS = ["--steps", "2"]
EXPERTS = ["--experts", "4"]
OVERLAPS = ["--distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
CLEAN = {
    "TP2 SP": ["--tp", "2", "--sp"],
    "PP2 VPP2": ["--pp", "2", "--vpp", "2"],
    "DP2 distributed optimizer, overlaps": OVERLAPS,
    "CP2": ["--cp", "2"],
    "experts EP2": [*EXPERTS, "--ep", "2"],
    "experts TP2 SP ETP2": [*EXPERTS, "--tp", "2", "--sp", "--etp", "2"],
}
BUGS = ("T1", "T11", "T8", "T6")
ROWS = (*CLEAN, *BUGS)

# What the library cannot do, or does otherwise: the introduction says how.
_NO_DISTRIBUTED_OPTIMIZER = "Invalid Transformer Engine version for FP8 distributed optimizer"
EXPECTED_ERRORS = {
    "0.12.3: DP2 distributed optimizer, overlaps": _NO_DISTRIBUTED_OPTIMIZER,
    "0.12.3: T8": _NO_DISTRIBUTED_OPTIMIZER,
}


def put_first(version: str) -> None:
    """Makes this release the one that everything started from here imports."""
    os.environ.pop("PYTHONPATH", None)
    if installed_version(PACKAGE) == version:
        return
    folder = FOLDERS / version
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, f"{PACKAGE}=={version}"], check=True)
    os.environ["PYTHONPATH"] = str(folder)


def flags_of(row: str) -> list[str]:
    if row in CLEAN:
        return [*STEPS, *CLEAN[row]]
    return [*STEPS, *bug_catalog.load(row).FLAGS, "--bug", row]


def missing_probes(trace: Path) -> str:
    """What the ranks of a run looked for and did not find."""
    ranks = [json.loads(path.read_text())["adapter"] for path in trace.rglob("meta.json")]
    if not ranks:
        return "not said"
    names = {name for rank in ranks for name, there in rank["private_names"].items() if not there}
    return " ".join(f"`{name.removeprefix('megatron.core.')}`" for name in sorted(names)) or "-"


def error_in(text: str) -> str:
    found = re.findall(r"^.*?\b(\w+(?:Error|Exit|Exception): .*)$", text, re.MULTILINE)
    own = [line for line in found if "ChildFailed" not in line]
    return own[0] if own else ""


def first_culprit(result: dict) -> str:
    if not result.get("culprits"):
        return "-"
    first = result["culprits"][0]
    letters = " ".join(entry["class"] for entry in first["classes"])
    return f"`{first['fqn'] or 'the model'}`, {first['role']} ({letters or '-'})"


def unexpected(name: str, row: str, outcome: runs.Outcome) -> str:
    """What is not as it should be, or nothing."""
    said = error_in(outcome.text) or outcome.result.get("reason", "") or f"exit {outcome.code}"
    if name in EXPECTED_ERRORS:
        return "" if EXPECTED_ERRORS[name] in outcome.text else said
    if row in CLEAN:
        return "" if outcome.code == 0 else said
    if outcome.code != 1:
        return said
    return "; ".join(bug_catalog.disagreements(outcome.result, bug_catalog.load(row).EXPECT))


def measure(name: str, row: str, folder: Path, reference: Path) -> tuple[list[str], bool, str]:
    """The row, whether it is as it should be, and what was said."""
    command = runs.launch(2, "train_gpt.py", *flags_of(row))
    outcome = runs.diff(folder, reference, command, "--force")
    result = outcome.result
    wrong = unexpected(name, row, outcome)
    said = wrong or EXPECTED_ERRORS.get(name, "")
    cells = [
        name,
        "NO" if wrong else "yes",
        result.get("verdict", "none"),
        str(result.get("coverage", {}).get("compared", 0)),
        worst(result, "real"),
        first_culprit(result),
        missing_probes(folder),
        said[:160].replace("|", "/") or "-",
    ]
    return cells, not wrong, outcome.text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of names of rows")
    parser.add_argument("--missing", action="store_true", help="only rows that are not there yet")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    named = {f"{version}: {row}": (version, row) for version in VERSIONS for row in ROWS}
    table = RowTable(TABLE, HEADER, COLUMNS, named)
    bad = []
    work = Path(tempfile.mkdtemp(prefix="ttrace-versions-"))
    references: set[Path] = set()
    for name, (version, row) in named.items():
        if not re.search(options.only, name):
            continue
        if options.missing and name in table.rows:
            continue
        put_first(version)
        experts = EXPERTS if "--experts" in flags_of(row) else []
        reference = work / f"{version}{'-experts' if experts else ''}"
        if reference not in references:
            command = runs.launch(1, "train_gpt.py", *STEPS, *experts)
            recorded = runs.record_reference(reference, command)
            if recorded.code != 0:
                print(f"{name}: the reference failed\n{recorded.text}", file=sys.stderr)
                return 2
            references.add(reference)
        folder = work / "run"
        cells, fine, said = measure(name, row, folder, reference)
        shutil.rmtree(folder, ignore_errors=True)
        table.set(cells)
        print(" | ".join(cells), flush=True)
        if not fine:
            bad.append(name)
            print(said, flush=True)
    shutil.rmtree(work, ignore_errors=True)
    print(f"versions: not as expected: {'; '.join(bad)}" if bad else "versions: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
