"""Several ways to judge one launch of the sweep, each a row of a table."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mutation_sweep.experiments import experiments
from mutation_sweep.judge import judge_clean, judge_mutant
from mutation_sweep.launch import (
    LaunchFailed,
    Sweep,
    record_candidate,
    record_reference,
)
from mutation_sweep.plan import Launch, plan

_HEAD = "found | placed | class right | clean flagged | clean inconclusive | highest clean headroom"

# The result.json of one iteration.
Check = Callable[[int], dict[str, Any]]
Entry = dict[str, Any]


def judge(sweep: Sweep, launch: Launch, rows: Mapping[str, Check]) -> list[Entry]:
    """One entry for each row and each iteration that was clean, or a mutant that happened."""
    entries = []
    for iteration, kind, mutant, modules in experiments(sweep, launch):
        if kind == "nothing":
            continue
        for row, check in rows.items():
            result = check(iteration)
            judged = (
                judge_clean(result) if mutant is None else judge_mutant(result, mutant, modules)
            )
            entries.append(
                {
                    "row": row,
                    "bf16": launch.bf16,
                    "launch": launch.number,
                    "iteration": iteration,
                    "mutant": mutant is not None,
                    "verdict": judged["verdict"],
                    "flagged": bool(judged["culprits"]),
                    "placed": judged.get("window") == 0,
                    "class": judged.get("class"),
                    "headroom": judged["headroom"],
                }
            )
    return entries


def cells(row: str, entries: list[Entry]) -> str:
    """Those under _HEAD."""
    mine = [entry for entry in entries if entry["row"] == row]
    mutants = [entry for entry in mine if entry["mutant"]]
    clean = [entry for entry in mine if not entry["mutant"]]
    flagged = [entry for entry in mutants if entry["flagged"]]
    rooms = [entry["headroom"] for entry in clean if entry["headroom"] is not None]
    texts = (
        f"{len(flagged)} of {len(mutants)}",
        f"{sum(entry['placed'] for entry in flagged)}",
        f"{sum(entry['class'] == 'right' for entry in flagged)}",
        f"{sum(entry['flagged'] for entry in clean)} of {len(clean)}",
        f"{sum(entry['verdict'] == 'inconclusive' for entry in clean)}",
        f"{max(rooms):.2f} (median {statistics.median(rooms):.2f})" if rooms else "",
    )
    return " | ".join(texts)


def read(folder: Path) -> list[Entry]:
    """What was judged of all seeds."""
    return [
        json.loads(line) | {"seed": path.stem}
        for path in sorted(folder.glob("seed-*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def make_table(
    description: str,
    out: Path,
    legs: tuple[str, str],
    rows_of: Callable[[Sweep, Launch], Mapping[str, Check]],
    table: Path,
    page: Callable[[], list[str]],
    record_options: tuple[str, ...] = (),
) -> int:
    """The command that writes `table`. Judges launches first, adding to `out`/seed-N.jsonl what all
    rows say of them; what is there already is not judged again. `legs`: of the reference and of
    the candidate. `record_options`: more words for `ttrace record`."""
    options = _arguments(description)
    if not options.table:
        _judge_launches(options, out, legs, rows_of, record_options)
    text = "\n".join(page())
    table.write_text(text)
    print(text)
    return 0


def _arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--launches", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="leave out launches before this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=12, help="of a launch")
    parser.add_argument("--timeout", type=int, default=1500, help="seconds of one training command")
    parser.add_argument("--table", action="store_true", help="write the table and do nothing else")
    return parser.parse_args()


def _judge_launches(
    options: argparse.Namespace,
    out: Path,
    legs: tuple[str, str],
    rows_of: Callable[[Sweep, Launch], Mapping[str, Check]],
    record_options: tuple[str, ...],
) -> None:
    folder = out / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder.with_suffix(".jsonl")
    sweep = Sweep(folder, options.iterations, *legs, options.timeout, record_options)
    for number in range(options.first, options.first + options.launches):
        launch = plan(options.seed, number, options.iterations, 2)
        if number in launches_of(results) or not _is_judged(launch):
            continue
        try:
            record_reference(sweep, launch)
            record_candidate(sweep, launch)
            entries = judge(sweep, launch, rows_of(sweep, launch))
        except LaunchFailed as failure:
            print(f"launch {number} failed: {failure}", file=sys.stderr)
            continue
        with results.open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        shutil.rmtree(sweep.candidate(launch), ignore_errors=True)
        print(f"launch {number} ({launch.topology}): {len(entries)} verdicts", flush=True)


def sections(out: Path, head: str, rows: Mapping[str, str]) -> list[str]:
    """A table for each precision, of all seeds: `rows` are what stands under `head` for each."""
    entries = read(out)
    columns = f"{head} | {_HEAD}"
    lines = []
    for precision, bf16 in (("bf16", True), ("fp32", False)):
        chosen = [entry for entry in entries if entry["bf16"] is bf16]
        if not chosen:
            continue
        launches = len({(entry["seed"], entry["launch"]) for entry in chosen})
        lines += ["", f"## {precision}", "", f"{launches} launches.", ""]
        lines += [f"| {columns} |", f"|{'---|' * (columns.count('|') + 1)}"]
        lines += [f"| {start} | {cells(row, chosen)} |" for row, start in rows.items()]
    return lines


def _is_judged(launch: Launch) -> bool:
    """Megatron's own loss is wrong where masks are uneven under CP (docs/case_study.md, B10): what
    was planted there would not be what is found."""
    return not ("uneven" in launch.model and "--cp" in launch.flags)


def launches_of(path: Path) -> set[int]:
    """Those that a seed's file has."""
    text = path.read_text() if path.exists() else ""
    return {json.loads(line)["launch"] for line in text.splitlines()}
