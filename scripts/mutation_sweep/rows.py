"""Several ways to judge one launch of the sweep, each a row of a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mutation_sweep.judge import happened, in_order, judge_clean, judge_mutant
from mutation_sweep.launch import Sweep, read_log
from mutation_sweep.plan import Launch

HEAD = "found | placed | class right | clean flagged | clean inconclusive | highest clean headroom"
HEAD_RULE = "---|---|---|---|---|---"

# The result.json of one iteration.
Check = Callable[[int], dict[str, Any]]
Entry = dict[str, Any]


def is_judged(launch: Launch) -> bool:
    """Megatron's own loss is wrong where masks are uneven under CP (docs/case_study.md, B10): what
    was planted there would not be what is found."""
    return not ("uneven" in launch.model and "--cp" in launch.flags)


def judge(sweep: Sweep, launch: Launch, rows: Mapping[str, Check]) -> list[Entry]:
    """One entry for each row and each iteration that was clean, or a mutant that happened."""
    log = read_log(sweep, launch)
    modules = in_order(log)
    planned = {mutant.iteration for mutant in launch.mutants}
    entries = []
    for iteration in range(sweep.iterations):
        mutant = happened(log, iteration)
        if iteration in planned and mutant is None:
            continue  # it changed nothing
        if mutant is not None:
            mutant["bf16"] = launch.bf16
            mutant["experts"] = "--experts" in launch.model
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
    """Those under HEAD."""
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


def add(path: Path, entries: list[Entry]) -> None:
    with path.open("a") as out:
        out.writelines(json.dumps(entry) + "\n" for entry in entries)


def launches_of(path: Path) -> set[int]:
    """Those that are judged."""
    text = path.read_text() if path.exists() else ""
    return {json.loads(line)["launch"] for line in text.splitlines()}
