#!/usr/bin/env python3
"""Makes docs/evidence/faults.md: what a job does when something fails in the middle of a rerun.

Every row is a real run of `zoo/train_gpt.py` under torchrun with one fault on one rank
(`zoo/with_fault.py`), compared with the same run without capture.

    .venv/bin/python scripts/fault_table.py                 all rows; about 40 minutes on two cores
    .venv/bin/python scripts/fault_table.py --only forward  rows that contain the word, printed

Rows that were run before are taken from build/faults.json; remove it to run them again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import ttrace

ROOT = Path(__file__).resolve().parent.parent
HOOK = Path(ttrace.__file__).resolve().parent / "hook"
sys.path.insert(0, str(ROOT / "zoo"))
sys.path.insert(0, str(ROOT / "tests"))

import with_fault  # noqa: E402
from index_lines import read_lines  # noqa: E402

LEGS = "replay,noise:2"
HANGS = 150  # seconds after which a run is given up
LIMIT = 10  # seconds that a leg may take here; 600 and more otherwise
MODEL = "--steps 3 --layers 2 --hidden 32 --ffn 64 --print-state".split()
TOPOLOGY = {2: "--tp 2".split(), 4: "--tp 2 --pp 2".split()}
KINDS = ("exception", "slow", "stuck", "killed", "full disk")
_FIRST = ("enter the leg", "forward", "seal the leg", "put back")
_ORDER = ("exception", "memory", "killed", "stuck", "full disk", "slow")
MEMORY = ("save gradients", "make the leg", "forward", "put back")
OF_FOUR = (
    ("save gradients", "memory"),
    ("make the leg", "memory"),
    ("forward", "exception"),
    ("forward", "stuck"),
    ("backward", "killed"),
    ("leave the leg", "exception"),
    ("seal the leg", "full disk"),
    ("put back", "exception"),
    ("put back", "memory"),
    ("start of capture", "exception"),
)


@dataclass
class Row:
    step: str
    fault: str
    ranks: int
    job: str = ""
    seconds: float = 0.0  # from the fault to the end of the job
    said: str = ""
    trace: str = ""
    check: str = ""


@dataclass
class Run:
    numbers: list[str]
    log: str
    code: int
    ended: float


def run(ranks: int, out: Path | None, fault: dict[str, object] | None) -> Run:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TTRACE_")}
    environment["OMP_NUM_THREADS"] = "1"
    if out is not None:
        environment |= with_fault.environment(out, HOOK, LEGS, LIMIT, fault)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = ["zoo/with_fault.py", "zoo/train_gpt.py", *MODEL, *TOPOLOGY[ranks]]
    started = subprocess.Popen(
        [*launcher, "--nproc-per-node", str(ranks), *script],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        log, _ = started.communicate(timeout=HANGS)
    except subprocess.TimeoutExpired:
        started.terminate()  # torchrun ends its ranks
        log, _ = started.communicate(timeout=60)
        log += "\nit hung\n"
    numbers = sorted(re.findall(r"^(?:step|state) .*$", log, re.MULTILINE))
    return Run(numbers, log, started.returncode, time.time())


def job(done: Run, plain: Run) -> str:
    if "\nit hung\n" in done.log:
        return "**HANGS**"
    if done.code == 0:
        equal = done.numbers == plain.numbers
        return "goes on, numbers equal" if equal else "**GOES ON WITH OTHER NUMBERS**"
    codes = dict(re.findall(r"rank +: (\d+) .*\n +exitcode +: (-?\d+)", done.log))
    ends = ", ".join(f"{rank}: {code}" for rank, code in sorted(codes.items()))
    trained = [line for line in done.numbers if line not in plain.numbers]
    return f"ends ({ends})" + (" **AFTER OTHER NUMBERS**" if trained else "")


def said(done: Run) -> str:
    """What each rank says, once where they say the same."""
    texts: dict[str, list[str]] = {}
    for rank, text in re.findall(r"^ttrace: rank (\d+): (.*)$", done.log, re.MULTILINE):
        text = re.sub(r" This rank is in .*?\)\.", "", text)
        texts.setdefault(text.replace("|", "/"), []).append(rank)
    return "<br>".join(f"rank {', '.join(sorted(who))}: {text}" for text, who in texts.items())


def kept(out: Path, ranks: int) -> str:
    """Iterations complete on all ranks, with their legs; and those whose passes are."""
    sealed: list[set[tuple[int, str]]] = []
    passes: list[set[int]] = []
    for rank in range(ranks):
        file = out / f"rank-{rank:05d}.r0" / "index.jsonl"
        entries = read_lines(file) if file.exists() else []
        sealed.append({(e["iteration"], e["leg"]) for e in entries if e["type"] == "seal"})
        passes.append(
            {e["data"]["iteration"] for e in entries if e.get("kind") == "passes_complete"}
        )
    everywhere, done = set.intersection(*sealed), set.intersection(*passes)
    words = []
    for iteration in sorted({i for i, _ in everywhere} | done):
        legs = [leg for i, leg in sorted(everywhere) if i == iteration and leg != "real"]
        complete = (iteration, "real") in everywhere
        words.append(f"{iteration}{'' if complete else ' (passes)'}: {' '.join(legs) or 'no legs'}")
    return "; ".join(words) or "nothing on all ranks"


def check(reference: Path, out: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ttrace._cli", "check", str(reference), str(out)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
    )  # fmt: skip
    lines = [line for line in done.stdout.split("\n") if line.strip()]
    verdict = next(
        (line for line in lines if re.match(r"[A-Z]{4,}", line)), lines[0] if lines else ""
    )
    verdict = " ".join(verdict.replace(str(out), "TRACE").split()).replace("|", "/")
    return f"{done.returncode}: {verdict[:100]}"


def wanted() -> list[Row]:
    rows = []
    for step in with_fault.STEPS:
        for fault in with_fault.FAULTS:
            # Before the first vote there is only the user's own call: whoever is stuck or killed
            # there stops a run without capture too.
            own = step == "start of capture" and fault in ("stuck", "killed")
            if (fault in KINDS or step in MEMORY) and not own:
                rows.append(Row(step, fault, 2))
    return rows + [Row(step, fault, 4) for step, fault in OF_FOUR]


def fill(row: Row, folder: Path, plain: Run) -> None:
    out = folder / f"{row.step}-{row.fault}-{row.ranks}".replace(" ", "_")
    # In the middle: neither the first rank, which may keep the store, nor always the last.
    fault = {"step": row.step, "fault": row.fault, "rank": row.ranks // 2}
    done = run(row.ranks, out, fault)
    at = re.search(r"^fault at (\S+)$", done.log, re.MULTILINE)
    row.job = job(done, plain) if at else "**THE FAULT DID NOT HAPPEN**"
    row.seconds = round(done.ended - float(at[1]), 1) if at else 0.0
    row.said = said(done)
    row.trace = kept(out, row.ranks)
    row.check = check(folder / f"clean-{row.ranks}", out)
    row.said = row.said.replace(str(out), "TRACE")
    subprocess.run(["rm", "-rf", str(out)], check=True)


def document(rows: list[Row]) -> str:
    bad = [row for row in rows if "**" in row.job]
    went_on = sum(row.job.startswith("goes on") for row in rows)
    text = f"""Made by `scripts/fault_table.py`. One fault on one rank, in leg `noise.1` of
    iteration 1 of three, with the legs `{LEGS}`; a leg may take {LIMIT} s here
    (`TTRACE_LEG_TIMEOUT`) instead of 600 or more. Two ranks: tensor parallel. Four: tensor and
    pipeline parallel. "Numbers equal": losses, gradient norms, SHA-256 of all parameters and
    random states of every rank are those of the run without capture. "Ends": exit codes by
    rank; -9 is the injected kill, -15 and what is not listed is torchrun ending the others.
    Seconds are from the fault to the end of the job, which has some seconds left to run where
    it goes on. Trace: iterations that are complete on all ranks, with their legs; "(passes)":
    all but the optimizer's step. `ttrace check` compares with the trace of a clean run: 0 is
    within bounds, 1 diverged, 2 undecided."""
    faults = """The faults: *memory* MemoryError, once; *exception* RuntimeError, each time;
    *slow* 4 s of sleep; *stuck* 600 s; *killed* SIGKILL; *full disk* no file may grow."""
    missing = len(wanted()) - len(rows)
    counts = (
        f"{len(rows)} runs: {went_on} went on with exactly their own numbers,"
        f" {len(rows) - went_on - len(bad)} ended, {len(bad)} did neither."
        + (f" {missing} of the table's rows were not run." if missing else "")
    )
    lines = ["# Faults in the middle of a rerun", ""]
    for paragraph in (text, counts, faults):
        lines += [textwrap.fill(" ".join(paragraph.split()), 100), ""]
    lines += [
        "| step | fault | ranks | the job | seconds | said | trace | check |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        cells = (r.step, r.fault, r.ranks, r.job, r.seconds, r.said, r.trace, r.check)
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows that contain these words")
    parser.add_argument(
        "--write", action="store_true", help="the document, of the rows that are known"
    )
    options = parser.parse_args()
    store = ROOT / "build" / "faults.json"
    store.parent.mkdir(exist_ok=True)
    known = {tuple(k): v for k, v in json.loads(store.read_text())} if store.exists() else {}
    rows = [r for r in wanted() if not options.write or (r.step, r.fault, r.ranks) in known]
    asked = [
        r for r in rows if all(w in f"{r.step} {r.fault} {r.ranks}" for w in options.only.split())
    ]
    with TemporaryDirectory() as temporary:
        folder, plain = Path(temporary), {}
        # What tells most comes first.
        for row in sorted(asked, key=lambda r: (r.step not in _FIRST, _ORDER.index(r.fault))):
            key = (row.step, row.fault, row.ranks)
            if key not in known:
                if row.ranks not in plain:
                    plain[row.ranks] = run(row.ranks, None, None)
                    clean = run(row.ranks, folder / f"clean-{row.ranks}", None)
                    if not plain[row.ranks].numbers or clean.numbers != plain[row.ranks].numbers:
                        sys.stdout.write(clean.log)
                        return 1
                fill(row, folder, plain[row.ranks])
                known[key] = dataclasses.asdict(row)
                store.write_text(json.dumps([[list(k), v] for k, v in known.items()], indent=1))
            found = Row(**known[key])
            print(" | ".join(map(str, dataclasses.astuple(found))), flush=True)
    if not options.only:
        table = [Row(**known[(r.step, r.fault, r.ranks)]) for r in rows]
        (ROOT / "docs" / "evidence" / "faults.md").write_text(document(table))
        return any("**" in row.job for row in table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
