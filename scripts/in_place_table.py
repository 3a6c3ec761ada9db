#!/usr/bin/env python3
"""Every case of tests/cases.py twice: measured where it runs, and with all values written
(--keep-values). Compares the two results and writes docs/evidence/in_place.md.

    scripts/in_place_table.py [--only REGEX] [--minutes 60] [--write-only]

Resumable: finished cases are kept in matrix/in_place.jsonl. Those still to be run come in an order
that mixes topologies and bugs, so that a part of them is a sample of all.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from cases import Case, all_cases  # noqa: E402
from runs import bytes_of_tensors, diff, record_reference  # noqa: E402

OUT = ROOT / "matrix" / "in_place"
RESULTS = ROOT / "matrix" / "in_place.jsonl"
TABLE = ROOT / "docs" / "evidence" / "in_place.md"
WAYS = {"measured": (), "kept": ("--keep-values",)}
SWEEP = "## Planted faults"  # scripts/in_place_sweep.py writes that section


def what_a_user_reads(result: dict) -> dict:
    """Verdict, culprits with their classes, and how much was compared."""
    return {
        "verdict": result["verdict"],
        "culprits": [
            [c["fqn"], c["direction"], c["stage"], [why["class"] for why in c["classes"]]]
            for c in result["culprits"]
        ],
        "compared": result["coverage"]["compared"],
    }


def numbers(result: dict, folder: Path) -> str:
    """All of it but the clock and the folder, as text."""
    rest = {k: v for k, v in result.items() if k != "seconds"}
    return json.dumps(rest, sort_keys=True).replace(str(folder), "")


def compared(results: dict[str, dict], folders: dict[str, Path]) -> dict:
    """What a table says of one run judged both ways: `results` and `folders` by way."""
    read = {way: what_a_user_reads(result) for way, result in results.items()}
    texts = {numbers(results[way], folders[way]) for way in WAYS}
    return {
        "verdict": read["kept"]["verdict"],
        "culprits": len(read["kept"]["culprits"]),
        "compared": read["kept"]["compared"],
        "differs": [k for k in read["kept"] if read["kept"][k] != read["measured"][k]],
        "every_number": len(texts) == 1,
    }


def run(case: Case, references: set[Path]) -> dict:
    results, sizes = {}, {}
    key = hashlib.sha256(case.reference_command.encode()).hexdigest()[:12]
    for way, options in WAYS.items():
        reference = OUT / way / f"reference-{key}"
        if reference not in references:
            shutil.rmtree(reference, ignore_errors=True)
            recorded = record_reference(reference, case.reference_command, options=options)
            if recorded.code != 0:
                raise SystemExit(f"{case.name}: the reference failed\n{recorded.text}")
            references.add(reference)
        report = OUT / way / "report"
        shutil.rmtree(report, ignore_errors=True)
        outcome = diff(report, reference, case.candidate_command, *options)
        if not outcome.result:
            raise SystemExit(f"{case.name}: no result\n{outcome.text}")
        results[way] = outcome.result
        sizes[way] = [bytes_of_tensors(reference), bytes_of_tensors(report / "candidate")]
        shutil.rmtree(report)
    return {
        "case": case.name,
        **compared(results, {way: OUT / way for way in WAYS}),
        "mb": {way: [round(size / 1e6, 2) for size in pair] for way, pair in sizes.items()},
    }


def write_table(rows: list[dict], total: int) -> None:
    same = sum(not row["differs"] for row in rows)
    exact = sum(row["every_number"] for row in rows)
    lines = [
        "# Measured in place: the same results",
        "",
        "Written by `scripts/in_place_table.py`: cases of the [matrix](matrix.md), each run twice,",
        "measured where it runs (as by default: noise against the run, the candidate against the",
        "reference) and with all values written (`--keep-values`), reference and candidate alike.",
        "Compared are the verdict, all culprits",
        "with direction, stage and classes, and how many tensors were compared; `numbers` says",
        "whether every number of result.json is the same, too. MB are those of tensors, of the",
        "reference and of the candidate. Where numbers are others it is one: what copies of an",
        "optimizer's states differ by, which in place is the lower end of what their sketches say.",
        "",
        f"{len(rows)} of {total} cases were run. The same verdict, culprits and classes: {same};",
        f"the same numbers: {exact}.",
        "",
        "| case | verdict | culprits | compared | the same | numbers | MB in place | MB kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        judged = "yes" if not row["differs"] else "no: " + ", ".join(row["differs"])
        measured, kept = (" + ".join(f"{mb:.2f}" for mb in row["mb"][way]) for way in WAYS)
        lines.append(
            f"| {row['case']} | {row['verdict']} | {row['culprits']} | {row['compared']} "
            f"| {judged} | {'yes' if row['every_number'] else 'no'} | {measured} | {kept} |"
        )
    _, begin, planted = TABLE.read_text().partition(SWEEP)
    TABLE.write_text("\n".join(lines) + "\n" + ("\n" + begin + planted if begin else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="regular expression of case names")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--write-only", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    done = {}
    if RESULTS.exists():
        done = {row["case"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    cases = all_cases()
    mixed = sorted(cases, key=lambda c: hashlib.sha256(c.name.encode()).digest())
    until = time.monotonic() + options.minutes * 60
    references: set[Path] = set()
    for case in mixed:
        wanted = case.name not in done and re.search(options.only, case.name)
        if options.write_only or not wanted or time.monotonic() > until:
            continue
        row = done[case.name] = run(case, references)
        with RESULTS.open("a") as out:
            out.write(json.dumps(row) + "\n")
        said = "differs: " + ", ".join(row["differs"]) if row["differs"] else "the same"
        print(f"[{len(done)}/{len(cases)}] {case.name}: {said} ({row['verdict']})", flush=True)
    rows = [done[case.name] for case in cases if case.name in done]
    write_table(rows, len(cases))
    return 1 if any(row["differs"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
