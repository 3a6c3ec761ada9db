"""docs/evidence/sweep.md from the results of all launches."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mutation_sweep.earlier import compared
from mutation_sweep.judge import of_attention

Row = dict[str, Any]
# They have rows of their own against size, whatever tensor they hit.
_OWN_ROWS = ("gain", "piece", "unsteady", "once")
_DECADES = (-6, -5, -4, -3, -2, -1, 0)


def write_table(path: Path, launches: list[Row], command: str) -> None:
    done = [launch for launch in launches if "failed" not in launch]
    rows = [{**row, "launch": launch} for launch in done for row in launch["experiments"]]
    clean = [row for row in rows if row["kind"] == "clean"]
    mutants = [row for row in rows if row["kind"] == "mutant"]
    alarms = [row for row in clean if row["culprits"]]
    undecided = [row for row in clean if not row["culprits"] and row["verdict"] == "inconclusive"]
    nothing = sum(row["kind"] == "nothing" for row in rows)
    worst = max((row["headroom"] for row in clean), default=0)
    lines = [
        "# Mutation sweep",
        "",
        f"Written by `{command}`. Faults are planted by mechanism at random places of random",
        "topologies and models (`zoo/mutation`); each captured iteration has weights and data of",
        "its own and is judged by itself. Every N-th is clean.",
        "",
        *_seeds(done),
        f"- {len(done)} launches, {len(mutants)} mutants that changed a number, {len(clean)} clean",
        f"  iterations. {nothing} drawn mutants found no place or changed nothing: not counted.",
        f"- False alarms: {len(alarms)}. Clean and undecided: {len(undecided)}.",
        f"  Worst clean headroom: {worst:.2g}.",
        f"- Detected: {_share(mutants, lambda row: row['detected'])}.",
        *_failures(launches),
        "",
    ]
    lines += _by_mechanism(mutants)
    lines += _power(mutants)
    lines += compared(mutants, cell_of, _miss)
    lines += _pieces(mutants)
    lines += _windows(mutants)
    lines += _topologies(rows)
    lines += _list("False alarms", alarms, _alarm)
    missed = [row for row in mutants if not row["detected"]]
    lines += _reasons(missed)
    lines += _list("Every miss", missed, _miss)
    for said, title in (("wrong", "Wrong classes"), ("silent", "Promised and not named")):
        chosen = [row for row in mutants if row["detected"] and row["class"] == said]
        lines += _list(title, chosen, _class)
    far = [row for row in mutants if row["detected"] and row["window"] not in (0, 1)]
    lines += _list("Blamed elsewhere (window of 2 or more)", far, _elsewhere)
    path.write_text("\n".join(lines).rstrip() + "\n")


def _seeds(launches: list[Row]) -> list[str]:
    found = sorted({launch["seed"] for launch in launches})
    return [
        f"Random numbers of seeds {', '.join(map(str, found))}. An experiment is named by seed,",
        "launch and iteration, as 1:17/3.",
        "",
        *_clean_ones(launches),
    ]


def _clean_ones(launches: list[Row]) -> list[str]:
    """Options of the command that a launch follows from, beside its seed and number."""
    found = defaultdict(list)
    for launch in launches:
        planned = (row["iteration"] for row in launch["experiments"] if row["kind"] != "clean")
        run = sum(
            1
            for _ in itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(planned, itertools.count(1), strict=False)
            )
        )
        found[len(launch["experiments"]), run + 1].append(f"{launch['seed']}:{launch['launch']}")
    return [
        f"- `--iterations {iterations} --clean {clean}`: {', '.join(names)}"
        for (iterations, clean), names in sorted(found.items())
    ]


def _share(rows: Iterable[Row], holds: Callable[[Row], bool]) -> str:
    rows = list(rows)
    return f"{sum(map(holds, rows))} of {len(rows)}" if rows else "-"


def _failures(launches: list[Row]) -> list[str]:
    failed = [launch for launch in launches if "failed" in launch]
    return [f"- Launches that failed: {', '.join(str(x['launch']) for x in failed)}."] * bool(
        failed
    )


def _name(row: Row) -> str:
    mutant = row["mutant"]
    return f"{mutant['family']} {mutant['mechanism']}"


def _by_mechanism(mutants: list[Row]) -> list[str]:
    lines = [
        "## By mechanism",
        "",
        "Window 0: the first culprit is the injected module. Stage: a collective inside a module",
        "may be called compute, because only its copies could tell. Classes are those of the first",
        "culprit: right, wrong, silent where one is promised, or silent and none promised: a",
        "changed row or element has no class, nor has what is mixed with other values before",
        "anything is recorded (sums of exponentials inside the loss, gathered keys and values,",
        "inputs gathered again for a weight's gradient, one rank's wrong term of a sum).",
        "",
        "A gain multiplies by 1.001 to 1.01. A piece is one rank's of a tensor of which ranks hold",
        "different pieces, its values permuted. Unsteady is an error that is another one in each",
        "run of the schedule, once one in the real run only: class I says that a replay differs. A",
        "setting is what one group's step computes with, changed by a factor of 1 + 1e-10 to 11. A",
        "mask is one dropout's, of a run whose dropout is off and whose masks are audited. A route",
        "is a router's: tokens go to the expert after the right one, or with another's weight.",
        "",
        "| mechanism | mutants | detected | window 0 | direction | stage | class right | wrong "
        "| silent | none promised |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups, new = defaultdict(list), defaultdict(list)
    for row in mutants:
        groups[_name(row)].append(row)
    for row in mutants:
        family, mechanism = row["mutant"]["family"], row["mutant"]["mechanism"]
        if mechanism in _OWN_ROWS or family in ("setting", "mask"):
            new[f"every {mechanism if mechanism in _OWN_ROWS else family}"].append(row)
    for name, rows in [*sorted(groups.items()), *sorted(new.items()), ("all", mutants)]:
        found = [row for row in rows if row["detected"]]
        classes = Counter(row["class"] for row in found)
        lines.append(
            f"| {name} | {len(rows)} | {len(found)} | {_share(found, lambda r: r['window'] == 0)} "
            f"| {_share(found, lambda r: r['direction_right'])} "
            f"| {_share(found, lambda r: r['stage_right'])} "
            f"| {classes['right']} | {classes['wrong']} | {classes['silent']} "
            f"| {classes['none promised']} |"
        )
    return [*lines, "", *_notes_of_replays(mutants)]


def _notes_of_replays(mutants: list[Row]) -> list[str]:
    rows = [row for row in mutants if row["mutant"]["mechanism"] in ("unsteady", "once")]
    silent = [row for row in rows if row["detected"] and row["class"] == "silent"]
    if not silent:
        return []
    noted = sum(bool(row["not_repeatable"]) for row in silent)
    return [
        f"Of {len(silent)} unsteady ones without class I {noted} have a note that a replay was not",
        "the same bit by bit.",
        "",
    ]


def role(row: Row) -> str:
    """Where the error was put, for the power curve."""
    family, mechanism = row["mutant"]["family"], row["mutant"]["mechanism"]
    if mechanism in _OWN_ROWS:
        return mechanism
    if family == "mask":
        return f"mask of {'attention' if of_attention(row['mutant']) else 'hidden states'}"
    return f"{row['mutant']['site']['phase']} collective" if family == "collective" else family


def precision(row: Row) -> str:
    return "bf16" if row["launch"]["bf16"] else "fp32"


def cell_of(row: Row) -> tuple[str, str, int]:
    return role(row), precision(row), _decade(row["mutant"]["relative"])


def _decade(relative: float) -> int:
    """Index of its column."""
    if not 0 < relative < math.inf:
        return len(_DECADES)
    exponent = math.floor(math.log10(relative))
    return sum(exponent >= edge for edge in _DECADES)


def _power(mutants: list[Row]) -> list[str]:
    edges = ["< 1e-6", *(f"1e{e}" for e in _DECADES[:-1]), ">= 1"]
    lines = [
        "## Detection against the size of the error",
        "",
        "Size is |error| / |value| of the tensor where the error is put, over all ranks and",
        "micro-batches that it hits. Cells are detected / all; columns begin at the size shown.",
        "",
        "| role | precision | " + " | ".join(edges) + " |",
        "|---" * (len(edges) + 2) + "|",
    ]
    cells: dict[tuple[str, str], dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in mutants:
        name, kind, column = cell_of(row)
        cells[name, kind][column].append(row["detected"])
    for (name, kind), columns in sorted(cells.items()):
        texts = [
            f"{sum(columns[i])}/{len(columns[i])}" if columns.get(i) else ""
            for i in range(len(edges))
        ]
        lines.append(f"| {name} | {kind} | " + " | ".join(texts) + " |")
    return [*lines, ""]


def _pieces(mutants: list[Row]) -> list[str]:
    lines = [
        "## Pieces by their part of the whole",
        "",
        "Norm of the piece that is wrong altogether by that of the whole tensor, in the first",
        "iteration.",
        "",
        "| from | below | mutants | detected |",
        "|---|---|---|---|",
    ]
    pieces = [row for row in mutants if row["mutant"]["mechanism"] == "piece"]
    for low, high in itertools.pairwise((0, 0.01, 0.1, 0.2, 0.4, 0.6, 1.01)):
        rows = [row for row in pieces if low <= row["mutant"]["share"] < high]
        if rows:
            found = sum(row["detected"] for row in rows)
            lines.append(f"| {low} | {min(high, 1)} | {len(rows)} | {found} |")
    return [*lines, ""]


def _windows(mutants: list[Row]) -> list[str]:
    counts = Counter(
        "not countable" if row["window"] is None else str(min(row["window"], 10))
        for row in mutants
        if row["detected"]
    )
    names = sorted(
        counts, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0)
    )
    lines = ["## Blame window", "", "| recorded modules off | mutants |", "|---|---|"]
    lines += [f"| {'10 or more' if name == '10' else name} | {counts[name]} |" for name in names]
    return [*lines, ""]


def _topologies(rows: list[Row]) -> list[str]:
    lines = ["## Topologies", "", "| topology | clean | false alarms | mutants | detected |"]
    lines.append("|---|---|---|---|---|")
    for name in sorted({row["launch"]["topology"] for row in rows}):
        mine = [row for row in rows if row["launch"]["topology"] == name]
        clean = [row for row in mine if row["kind"] == "clean"]
        mutants = [row for row in mine if row["kind"] == "mutant"]
        lines.append(
            f"| {name} | {len(clean)} | {sum(bool(row['culprits']) for row in clean)} "
            f"| {len(mutants)} | {sum(row['detected'] for row in mutants)} |"
        )
    return [*lines, ""]


def _list(title: str, rows: list[Row], text: Callable[[Row], str]) -> list[str]:
    return [f"## {title}", "", *([f"- {text(row)}" for row in rows] or ["None."]), ""]


def where(row: Row) -> str:
    """Names an experiment: the launch and iteration to run again, and what was in it."""
    launch = row["launch"]
    kind = f"{launch['topology']}{' recompute' if launch['recompute'] else ''} {precision(row)}"
    return f"{launch['seed']}:{launch['launch']}/{row['iteration']} ({kind})"


def _alarm(row: Row) -> str:
    first = row["culprits"][0]
    return f"{where(row)}: {first['fqn']} {first['role']}, headroom {first['headroom']}"


def _mutant(row: Row) -> str:
    mutant, site = row["mutant"], row["mutant"]["site"]
    over = f" over {site['group']}" if site["group"] else ""
    return (
        f"{where(row)}: {_name(row)} ({mutant['ranks']}) of {site['kind']}{over} in "
        f"`{site['fqn'] or 'model'}`, {site['phase']}, size {mutant['relative']:.1e}"
    )


def _reasons(missed: list[Row]) -> list[str]:
    counts = Counter(row["why_missed"].partition(":")[0] for row in missed)
    lines = ["## Misses by reason", "", "| reason | mutants |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in counts.most_common()]
    return [*lines, ""]


def _miss(row: Row) -> str:
    return f"{_mutant(row)}: {row['why_missed']}"


def _class(row: Row) -> str:
    classes = row["culprits"][0]["classes"]
    return _mutant(row) + (f": {classes[0]}" if classes else "")


def _elsewhere(row: Row) -> str:
    first = row["culprits"][0]
    return f"{_mutant(row)}: blamed `{first['fqn'] or 'model'}` {first['role']} ({row['window']})"
