"""Writes docs/evidence/clean_runs.md from the results."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from clean_table.bound import upper_bound

Run = dict[str, Any]
FINDINGS = Path(__file__).parent / "findings.md"
CLEAN = ("within", "bitwise_equal")
_NEAR = 0.8  # runs that come so close to a bound are listed

HEAD = """# Clean runs

Written by `scripts/clean_runs.py`. In each run a candidate of 2, 4 or 8 ranks is compared with a
reference that computes the same: nothing is wrong, so "diverged" is a false alarm, and
"inconclusive" a run of a supported kind that was left undecided. Models, options, precision and
topologies are drawn at random (`scripts/clean_table/draw.py`, `scripts/clean_table/plan.py`). What
megatron-core refuses is drawn again; what is another function in another topology, and known bugs
of megatron-core 0.16.1, are left out (`scripts/clean_table/fits.py`).

Half A is the development half: the judge may be changed by what it shows, and the run is then
repeated. Half B differs in kind (wider and deeper models, longer sequences, other options and
trainers, mostly 4 and 8 ranks) and is run once, after every constant was frozen.

The upper bound of P(false alarm per run) is exact (Clopper and Pearson, one-sided, 95 %). It holds
for runs drawn as these are: candidates of one model share its reference and are not quite
independent. Headroom is a test's value over its bound; above 1 is flagged.
"""


def write_table(path: Path, lines: list[Run], former: list[Run]) -> None:
    """`former`: of configurations that are no longer drawn."""
    runs = [line for line in lines if line["verdict"] not in ("refused",)]
    text = [
        HEAD,
        _counts(runs, len(lines) - len(runs)),
        _former(former),
        *_not_within(runs),
        *_near(runs),
    ]
    if FINDINGS.exists():
        text.append(f"\n{FINDINGS.read_text().strip()}\n")
    text += _by("Topologies", "topology", runs, lambda run: [run["shape"]])
    text += _by("Options", "option", runs, _options)
    text += _roles(runs)
    path.write_text("\n".join(text) + "\n")


def _counts(runs: list[Run], refused: int) -> str:
    lines = [
        "| half | models | runs | within | false alarms | undecided | tests "
        "| P(false alarm per run), 95 % bound |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for half in ("A", "B", "both"):
        chosen = [run for run in runs if half in (run["half"], "both")]
        if not chosen:
            continue
        alarms, undecided = _alarms(chosen), _undecided(chosen)
        lines.append(
            f"| {half} | {len({(r['half'], r['model']) for r in chosen})} | {len(chosen)} | "
            f"{len(chosen) - len(alarms) - len(undecided)} | {len(alarms)} | {len(undecided)} | "
            f"{sum(run.get('tests', 0) for run in chosen):,} | "
            f"{upper_bound(len(alarms), len(chosen)):.4f} |"
        )
    if refused:
        lines.append(f"\nNot counted: {refused} launches that the trainer refuses.")
    return "\n".join(lines)


def _former(lines: list[Run]) -> str:
    lines = [line for line in lines if line["verdict"] != "refused"]
    flagged = _alarms(lines)
    if not lines:
        return ""
    return (
        f"\nNot counted either: {len(lines)} runs of configurations that are no longer drawn, "
        f"of which {len(flagged)}\ndiverged, by faults of the library (below)."
    )


def _alarms(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run["verdict"] == "diverged"]


def _undecided(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run["verdict"] not in (*CLEAN, "diverged")]


def _not_within(runs: list[Run]) -> list[str]:
    wrong = [*_alarms(runs), *_undecided(runs)]
    lines = ["\n## Not within\n"] if wrong else []
    for run in wrong:
        lines.append(f"- {_name(run)}, {run['shape']}: {run['verdict']}: {run['reason']}")
        lines.append(f"  `{run['candidate']}` against `{run['reference']}`")
    return lines


def _near(runs: list[Run]) -> list[str]:
    near = [run for run in runs if run["verdict"] in CLEAN and _largest(run) >= _NEAR]
    lines = [f"\n## Clean runs with a headroom of {_NEAR} or more\n"] if near else []
    for run in sorted(near, key=_largest, reverse=True):
        lines.append(
            f"- {_largest(run):.2f}: {_test(run['largest'])}; {_name(run)}, {run['shape']}"
        )
        lines.append(f"  `{run['candidate']}`")
    return lines


def _by(
    title: str, column: str, runs: list[Run], keys: Callable[[Run], Iterable[str]]
) -> list[str]:
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        for key in keys(run):
            grouped[key].append(run)
    lines = [f"\n## {title}\n"]
    lines.append(f"| {column} | runs | within | diverged | undecided | largest headroom |")
    lines.append("|---|---|---|---|---|---|")
    for key, group in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0])):
        bad = len(_alarms(group)), len(_undecided(group))
        worst = max(map(_largest, group))
        lines.append(
            f"| {key} | {len(group)} | {len(group) - sum(bad)} | {bad[0]} | {bad[1]} | "
            f"{worst:.2f} |"
        )
    return lines


# Sizes and seeds: every run has them.
_EVERYWHERE = set(
    "nproc-per-node layers hidden heads kv-groups ffn seq vocab init-std global-batch micro-batch"
    " seed steps tp sp cp pp vpp ep etp recompute-layers aux-loss-coeff lr clip weight-decay"
    " adam-beta2".split()
)
_WITH_VALUE = {"optimizer", "softmax", "aux-loss", "router-scores", "dispatcher", "positions"}


def _options(run: Run) -> list[str]:
    flags = shlex.split(run["candidate"])
    found: Counter[str] = Counter()
    for position, flag in enumerate(flags):
        name = flag.removeprefix("--")
        if flag.startswith("--") and name not in _EVERYWHERE:
            value = f" {flags[position + 1]}" if name in _WITH_VALUE else ""
            found[f"`--{name}{value}`"] += 1
    if "train_gpt" in run["candidate"]:
        if not {"`--bf16`", "`--fp16`"} & set(found):
            found["fp32"] += 1
        ranks = run["reference"].split()[2] if run["reference"].startswith("torchrun") else "1"
        if ranks != "1":
            found[f"reference of {ranks} ranks"] += 1
    else:
        script = next(word for word in flags if word.endswith(".py"))
        return [f"`{script}`"]
    return list(found)


def _roles(runs: list[Run]) -> list[str]:
    """The largest headroom of each kind of tensor, end to end and isolated, and whose it is."""
    worst: dict[tuple[str, str], dict[str, tuple[float, dict[str, Any], Run]]] = defaultdict(dict)
    for run in runs:
        for key, test in run.get("roles", {}).items() if run["verdict"] in CLEAN else ():
            kind, role, what, way = key.split("|")
            entry = worst[(kind, f"{role} {what}".strip())]
            if way not in entry or test["headroom"] > entry[way][0]:
                entry[way] = test["headroom"], test, run
    lines = [
        "\n## Largest headroom of each role\n",
        "Of clean runs. A role is a kind of module or parameter, with what of it was compared; its",
        "direction follows (`output`, `input`, `loss`: forward; `grad_*`: backward;",
        "`param_updated`, `optim_state`, `grad_norm`: update). Steps of an optimizer are compared",
        "with a worst case of their own rounding, which honest steps reach, and stand in a column",
        "of their own. The test and the run are those of the largest number of a row.\n",
        "| kind | what | end to end | isolated | step | test | run |",
        "|---|---|---|---|---|---|---|",
    ]
    for (kind, role), ways in sorted(worst.items(), key=lambda item: _row_order(item[1])):
        _, test, run = max(ways.values(), key=lambda entry: entry[0])
        cells = [
            f"{ways[w][0]:.2f}" if w in ways else "" for w in ("end to end", "isolated", "exact")
        ]
        where = f"{test['leg']} {test['statistic']}, {test['tensor'] or 'the model'}"
        lines.append(
            f"| {kind} | {role} | {' | '.join(cells)} | {where} | {_name(run)} {run['shape']} |"
        )
    return lines


def _row_order(ways: dict[str, tuple[float, dict[str, Any], Run]]) -> tuple[bool, float]:
    """Estimated bounds first, the nearest before all."""
    estimated = [entry[0] for way, entry in ways.items() if way != "exact"]
    return not estimated, -max(estimated or [entry[0] for entry in ways.values()])


def _largest(run: Run) -> float:
    largest = run.get("largest")
    return float(largest["headroom"]) if largest else 0.0


def _test(test: dict[str, Any]) -> str:
    return f"{test['leg']} {test['statistic']} of {test['tensor'] or 'the model'} {test['role']}"


def _name(run: Run) -> str:
    return f"{run['half']}{run['model']}"
