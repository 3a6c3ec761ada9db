#!/usr/bin/env python3
"""Which bugs of the zoo are found, placed and named where values were not kept. Writes
docs/fidelity_bugs.md.

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
from cases import DTYPES, Case, bug_cases, bug_catalog  # noqa: E402
from runs import ttrace  # noqa: E402

OUT = ROOT / "matrix" / "fidelity"
RESULTS = OUT.with_suffix(".jsonl")
TABLE = ROOT / "docs" / "fidelity_bugs.md"
REFERENCE_LEGS = "replay,noise:3,fp32,fp32.noise:3"
CANDIDATE_LEGS = "replay,fp32"
BUCKETS = {"sketch": 1024, "digest": 0}
WAYS = (("full", "full"), ("full", "sketch"), ("sketch", "sketch"), ("full", "digest"))


def record(trace: Path, legs: str, command: str, *options: object) -> None:
    words = ("--iterations", "0:2", "--legs", legs, "--keep-values", *options, "-o", trace)
    done = ttrace("record", *words, "--", "/bin/sh", "-c", f"exec {command}")
    if done.code != 0:
        raise SystemExit(done.explain())


def condensed(trace: Path, fidelity: str) -> Path:
    """The trace with this much left of it; made once."""
    if fidelity == "full":
        return trace
    out = trace.parent / fidelity
    if not out.exists():
        done = ttrace("baseline", trace, "-o", out, "--buckets", str(BUCKETS[fidelity]))
        if done.code != 0:
            raise SystemExit(done.explain())
    return out


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
    bug = bug_catalog.load(case.bugs[0])
    culprits = result["culprits"]
    first = culprits[0] if culprits else None
    expected = {key: value for key, value in bug.EXPECT.items() if key != "classes"}
    placed = False
    if first and not bug_catalog.is_control(bug):
        wanted = {**expected, "classes": [*(c["class"] for c in first["classes"][:1])]}
        placed = not bug_catalog.disagreements({**result, "culprits": [first]}, wanted)
    return {
        "verdict": result["verdict"],
        "where": f"{first['role']} of {first['fqn'] or 'the model'}" if first else "",
        "iteration": first["iteration"] if first else None,
        "culprits": len(culprits),
        "placed": placed,
        "as_expected": not bug_catalog.disagreements(result, bug.EXPECT),
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
    entry: dict[str, Any] = {"case": case.name, "bug": case.bugs[0]}
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


def page(entries: list[dict[str, Any]], total: int) -> list[str]:
    ways = [f"{r}/{c}" for r, c in WAYS]
    lines = [
        "# Bugs of the zoo by what was kept",
        "",
        "Written by `scripts/fidelity_bugs.py`: the bugs of [the zoo](../zoo/README.md#bugs), each",
        "recorded once with values and judged by them, and with the candidate or both sides",
        "condensed by `ttrace baseline` to sketches of 1,024 buckets or to digests, with their",
        "samples. Tensors that are smaller than what would be kept of them stay values. Without",
        "isolated legs, which take values; two iterations of models of hidden 64. Found: something",
        "is blamed. Placed: the first culprit is where the bug's file expects it (place,",
        "direction, stage, iteration). As expected: its first class is right, too, and nobody else",
        "is blamed.",
        "",
    ]
    for precision in DTYPES:
        chosen = [entry for entry in entries if entry["case"].endswith(f"-{precision}")]
        if not chosen:
            continue
        bugs = {e["case"]: bug_catalog.load(e["bug"]) for e in chosen}
        real = [e for e in chosen if not bug_catalog.is_control(bugs[e["case"]])]
        lines += [
            f"## {precision}",
            "",
            f"{len(real)} bugs and {len(chosen) - len(real)} controls of {total}.",
            "",
            "| reference / candidate | found | placed | as expected | controls flagged "
            "| controls inconclusive |",
            "|---|---|---|---|---|---|",
        ]
        controls = [e for e in chosen if e not in real]
        for way in ways:
            open_ones = sum(e[way]["verdict"] == "inconclusive" for e in controls)
            cells = [share(real, way, key) for key in ("where", "placed", "as_expected")]
            lines.append(
                f"| {way} | {' | '.join(cells)} | {share(controls, way, 'where')} | {open_ones} |"
            )
        lines += [
            "",
            "Classes of the first culprit (-: none); where that is another tensor than by values,",
            "it is named. Where nothing is blamed, the verdict.",
            "",
            f"| bug | first culprit by values | {' | '.join(ways)} |",
            f"|{'---|' * (len(ways) + 2)}",
        ]
        for entry in chosen:
            bug, values = bugs[entry["case"]], entry[ways[0]]
            cells = [cell(entry[way], values, bug_catalog.is_control(bug)) for way in ways]
            lines.append(f"| {bug.ID} | {values['where']} | {' | '.join(cells)} |")
        lines.append("")
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
    cases = bug_cases()
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
    entries = [done[case.name] for case in cases if case.name in done]
    TABLE.write_text("\n".join(page(entries, len(cases) // len(DTYPES))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
