#!/usr/bin/env python3
"""Runs every case of tests/cases.py and writes the table docs/evidence/matrix.md.

Resumable: finished cases are kept in matrix/results.jsonl (delete it, or pass --fresh, to start
over). A reference bundle is recorded once for all candidates that share it. With --keep the
candidates' traces stay, too: scripts/judged_again.py judges them by a later build.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import rank_server  # noqa: E402
from cases import Case, all_cases, bug_catalog  # noqa: E402
from runs import Outcome, diff, record_reference  # noqa: E402

OUT = ROOT / "matrix"
RESULTS = OUT / "results.jsonl"
TABLE = ROOT / "docs" / "evidence" / "matrix.md"


def verdict_on(case: Case, outcome: Outcome) -> str:
    """ "ok", or what is wrong."""
    result = outcome.result
    if not result:
        return f"no result (exit {outcome.code})"
    bugs = [bug_catalog.load(name) for name in case.bugs]
    if all(bug_catalog.is_control(bug) for bug in bugs):
        coverage = result["coverage"]
        unexplained = coverage["reference_only"] + coverage["candidate_only"]
        clean = outcome.code == 0 and not result["culprits"] and unexplained == 0
        return "ok" if clean else f"exit {outcome.code}, {unexplained} unexplained"
    if outcome.code != 1:
        return f"exit {outcome.code}"
    wrong = bug_catalog.disagreements(result, *(bug.EXPECT for bug in bugs))
    return "; ".join(wrong) or "ok"


def worst(result: dict, leg: str) -> str:
    values = [
        float(entry["headroom"])
        for tensor in result.get("tensors", [])
        for entry in tensor.get("legs", [])
        if entry["leg"] == leg and tensor["verdict"] not in ("not_checkable", "unmatched")
    ]
    return f"{max(values):.2g}" if values else "-"


def alone(result: dict) -> str:
    """The largest headroom in an isolated leg."""
    values = [
        float(tensor["isolated"]["headroom"])
        for tensor in result.get("tensors", [])
        if tensor.get("isolated") and tensor["isolated"]["verdict"] != "not_checkable"
    ]
    return f"{max(values):.2g}" if values else "-"


def row(case: Case, outcome: Outcome) -> dict:
    result = outcome.result
    first = result["culprits"][0] if result.get("culprits") else None
    entry = {
        "case": case.name,
        "judged": verdict_on(case, outcome),
        "verdict": result.get("verdict", "none"),
        "compared": result.get("coverage", {}).get("compared", 0),
        "real": worst(result, "real"),
        "fp32": worst(result, "fp32"),
        "alone": alone(result),
        "seconds": round(outcome.seconds, 1),
        "check_seconds": round(float(result.get("seconds", 0)), 2),
        "first": "",
        "by": "",
        "classes": "",
        "evidence": "",
    }
    if first:
        entry["first"] = f"{first['fqn']} ({first['direction']}, {first['stage']})"
        entry["by"] = " ".join(way[0] for way in first.get("found_by") or ["dataflow"])
        if first["classes"]:
            entry["classes"] = " ".join(why["class"] for why in first["classes"])
            entry["evidence"] = first["classes"][0]["evidence"]
    return entry


def write_table(rows: list[dict]) -> None:
    lines = [
        "# Matrix: every promised run, as judged",
        "",
        "Written by `make matrix`. Headroom is error / bound of the worst tensor: at most 1 in a",
        "clean run, in the run itself (real) and in its fp32 leg. An fp32 run is its own fp32 leg.",
        "`alone` is the same with every module isolated. `by` says which way named the culprit: d",
        "for dataflow, i for isolation. Seconds are those of the candidate's launch, legs, check;",
        "references are shared.",
        "",
        f"{sum(r['judged'] == 'ok' for r in rows)} of {len(rows)} cases are judged as promised.",
        "",
        "| case | judged | verdict | compared | real | fp32 | alone | s | first culprit | by "
        "| classes | evidence of the first |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['case']} | {r['judged']} | {r['verdict']} | {r['compared']} | {r['real']} "
            f"| {r['fp32']} | {r['alone']} | {r['seconds']} | {r['first']} | {r['by']} "
            f"| {r['classes']} | {r['evidence']} |"
        )
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--only", default="", help="regular expression of case names")
    parser.add_argument("--keep", action="store_true", help="do not delete candidates' traces")
    options = parser.parse_args()
    with rank_server.serving():
        return run_all(options)


def run_all(options: argparse.Namespace) -> int:
    if options.fresh:
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(exist_ok=True)
    done = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            entry = json.loads(line)
            done[entry["case"]] = entry
    cases = [c for c in all_cases() if re.search(options.only, c.name)]
    references: dict[str, Path] = {}
    for index, case in enumerate(cases):
        if case.name in done:
            continue
        command = case.reference_command
        if command not in references:
            # A name that no earlier run gave: kept traces refer to theirs.
            folder = OUT / f"reference-{case.name}"
            shutil.rmtree(folder, ignore_errors=True)
            recorded = record_reference(folder, command)
            if recorded.code != 0:
                print(f"{case.name}: the reference failed\n{recorded.text}", file=sys.stderr)
                return 2
            references[command] = folder
        report = OUT / case.name
        shutil.rmtree(report, ignore_errors=True)
        outcome = diff(report, references[command], case.candidate_command)
        entry = row(case, outcome)
        if entry["judged"] != "ok":
            (OUT / f"{case.name}.txt").write_text(outcome.text)
        if options.keep:
            (report / "reference").symlink_to(Path("..") / references[command].name)
        else:
            shutil.rmtree(report / "candidate", ignore_errors=True)
        done[case.name] = entry
        with RESULTS.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        print(
            f"[{index + 1}/{len(cases)}] {case.name}: {entry['judged']} ({entry['verdict']}, real "
            f"{entry['real']}, fp32 {entry['fp32']}, {entry['seconds']} s) {entry['first']}",
            flush=True,
        )
    rows = [done[c.name] for c in all_cases() if c.name in done]
    write_table(rows)
    bad = [r["case"] for r in rows if r["judged"] != "ok"]
    print(f"{len(rows) - len(bad)} passed, {len(bad)} failed" + (f": {bad}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
