#!/usr/bin/env python3
"""Which bugs of the zoo are found, placed and named where values were not kept. Writes
docs/evidence/fidelity_bugs.md.

    scripts/fidelity_bugs.py [--only REGEX] [--minutes 60] [--precision bf16] [--write-only]

Each bug of tests/cases.py is recorded once with all its values; then either side or both are
condensed (`ttrace baseline`) and judged again. Without isolated legs, which take values. Resumable:
what was judged is in matrix/fidelity.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from cases import DTYPES, Case, axis_cases, bug_cases, bug_catalog, clean_cases  # noqa: E402
from fidelity_table import CANDIDATE_LEGS, REFERENCE_LEGS, condensed  # noqa: E402
from runs import ttrace  # noqa: E402

OUT = ROOT / "matrix" / "fidelity"
RESULTS = OUT.with_suffix(".jsonl")
TABLE = ROOT / "docs" / "evidence" / "fidelity_bugs.md"
WAYS = (("full", "full"), ("full", "sketch"), ("sketch", "sketch"))
# Clean runs beside the zoo's controls: of each kind of placement and of scaled copies.
CLEAN = ("tp2sp", "tp2_cp2", "pp2", "dp2_distopt", "tp2sp_ep2")


def all_cases() -> list[Case]:
    names = {f"clean-{topology}-{dtype}" for topology in CLEAN for dtype in DTYPES}
    clean = [case for case in (*clean_cases(), *axis_cases()) if case.name in names]
    return [*bug_cases(), *clean]


def expected_of(case: Case) -> dict[str, Any]:
    return bug_catalog.load(case.bugs[0]).EXPECT if case.bugs else {"clean": True}


def record(trace: Path, legs: str, command: str, *options: object) -> None:
    words = ("--iterations", "0:2", "--legs", legs, "--keep-values", *options, "-o", trace)
    done = ttrace("record", *words, "--", "/bin/sh", "-c", f"exec {command}")
    if done.code != 0:
        raise SystemExit(done.explain())


def reference_of(case: Case, known: dict[str, Path]) -> Path:
    command = case.reference_command
    if command not in known:
        # Bugs with equal references follow each other: one is there at a time.
        shutil.rmtree(OUT / "reference", ignore_errors=True)
        known.clear()
        trace = OUT / "reference" / "trace"
        record(trace, REFERENCE_LEGS, command, "--dropout", "off")
        known[command] = trace
    return known[command]


def said(result: dict[str, Any], case: Case) -> dict[str, Any]:
    expected = expected_of(case)
    culprits = result["culprits"]
    first = culprits[0] if culprits else None
    placed = False
    if first and "clean" not in expected:
        # Whatever its class is.
        wanted = {**expected, "classes": [found["class"] for found in first["classes"][:1]]}
        placed = not bug_catalog.disagreements({**result, "culprits": [first]}, wanted)
    return {
        "verdict": result["verdict"],
        "where": f"{first['role']} of {first['fqn'] or 'the model'}" if first else "",
        "iteration": first["iteration"] if first else None,
        "culprits": len(culprits),
        "placed": placed,
        "as_expected": not bug_catalog.disagreements(result, expected),
        "classes": [found["class"] for found in first["classes"]] if first else [],
        "headroom": first["headroom"] if first else None,
        "fidelity": result.get("fidelity"),
        "reason": result["reason"],
    }


def judge(case: Case, known: dict[str, Path]) -> dict[str, Any]:
    reference = reference_of(case, known)
    folder = OUT / "candidate"
    shutil.rmtree(folder, ignore_errors=True)
    candidate = folder / "trace"
    record(candidate, CANDIDATE_LEGS, case.candidate_command, "--graft", reference)
    entry: dict[str, Any] = {"case": case.name}
    for r, c in WAYS:
        report = folder / "report"
        shutil.rmtree(report, ignore_errors=True)
        traces = (condensed(reference, r), condensed(candidate, c))
        outcome = ttrace("check", *traces, "-o", report, folder=report)
        if not outcome.result:
            raise SystemExit(f"{case.name} {r}/{c}: no result\n{outcome.text}")
        entry[f"{r}/{c}"] = said(outcome.result, case)
    shutil.rmtree(folder)
    return entry


def cell(found: dict[str, Any], values: dict[str, Any], control: bool) -> str:
    """Classes of the first culprit, and in words whatever is not as it should be."""
    if not found["where"]:
        usual = control and found["verdict"] in ("within", "bitwise_equal")
        return found["verdict"] if usual or not control else f"**{found['verdict']}**"
    text = " ".join(found["classes"]) or "-"
    if control:
        return f"**{found['verdict']}**: {found['where']}"
    if found["where"] != values["where"]:
        text += f" at {found['where']}"
    return text if found["placed"] else f"{text} (elsewhere)"


def share(entries: list[dict[str, Any]], way: str, key: str) -> str:
    return f"{sum(bool(entry[way][key]) for entry in entries)}"


def table_of(precision: str, chosen: list[tuple[Case, dict[str, Any]]]) -> list[str]:
    ways = [f"{r}/{c}" for r, c in WAYS]
    bugs = [entry for case, entry in chosen if "clean" not in expected_of(case)]
    clean = [entry for case, entry in chosen if "clean" in expected_of(case)]
    lines = [
        f"## {precision}",
        "",
        f"{len(bugs)} bugs, and {len(clean)} runs of which nothing may be said: the zoo's controls",
        "and clean topologies.",
        "",
        "| reference / candidate | found | placed | as expected | clean flagged "
        "| clean inconclusive |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways:
        undecided = sum(entry[way]["verdict"] == "inconclusive" for entry in clean)
        cells = [share(bugs, way, key) for key in ("where", "placed", "as_expected")]
        lines.append(
            f"| {way} | {' | '.join(cells)} | {share(clean, way, 'where')} | {undecided} |"
        )
    lines += [
        "",
        "Classes of the first culprit (-: none); where that is another tensor than by values, it",
        "is named. Where nothing is blamed, the verdict.",
        "",
        f"| bug | first culprit by values | {' | '.join(ways)} |",
        f"|{'---|' * (len(ways) + 2)}",
    ]
    for case, entry in chosen:
        values = entry[ways[0]]
        control = "clean" in expected_of(case)
        cells = [cell(entry[way], values, control) for way in ways]
        name = case.name.removeprefix("bug-").removesuffix(f"-{precision}")
        lines.append(f"| {name} | {values['where']} | {' | '.join(cells)} |")
    return [*lines, ""]


def page(done: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "# Bugs of the zoo by what was kept",
        "",
        "Written by `scripts/fidelity_bugs.py`: the bugs of [the",
        "zoo](../../zoo/README.md#bugs), each recorded once with values and judged by them, and",
        "with the candidate or both sides condensed by `ttrace baseline` to sketches of 1,024",
        "buckets, with their samples. Tensors that are smaller than what would be kept of them",
        "stay values. Without isolated legs, which take values; two iterations of models of hidden",
        "64. Found: something is blamed. Placed: the first culprit is where the bug's file expects",
        "it (place, direction, stage, iteration). As expected: its first class is right, too, and",
        "nobody else is blamed.",
        "",
        "What sketches miss of what values name is a class whose rule asks for rows or the bits",
        "of many elements, which a sample has too few of.",
        "",
    ]
    for precision in DTYPES:
        chosen = [
            (case, done[case.name])
            for case in all_cases()
            if case.name in done and case.name.endswith(f"-{precision}")
        ]
        if chosen:
            lines += table_of(precision, chosen)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression of case names")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no bug after this time")
    parser.add_argument("--precision", choices=tuple(DTYPES), help="leave out the other")
    parser.add_argument("--write-only", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    text = RESULTS.read_text() if RESULTS.exists() else ""
    done = {entry["case"]: entry for entry in map(json.loads, text.splitlines())}
    cases = all_cases()
    chosen = [c for c in cases if not options.precision or c.name.endswith(options.precision)]
    # Bugs with equal references follow each other.
    chosen.sort(key=lambda c: hashlib.sha256(c.reference_command.encode()).digest())
    until = time.monotonic() + options.minutes * 60
    known: dict[str, Path] = {}
    for case in chosen:
        wanted = case.name not in done and re.search(options.only, case.name)
        if options.write_only or not wanted or time.monotonic() > until:
            continue
        entry = done[case.name] = judge(case, known)
        with RESULTS.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        ways = (f"{r}/{c} {entry[f'{r}/{c}']['verdict']}" for r, c in WAYS)
        print(f"{case.name}: {', '.join(ways)}", flush=True)
    TABLE.write_text("\n".join(page(done)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
