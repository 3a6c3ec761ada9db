"""Writes docs/evidence/sizes.md: clean runs, and how a test's largest headroom goes with size."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

HEAD = """# Clean runs at size

Written by `make sizes`. In each run a candidate of several ranks is compared with one process that
computes the same: nothing is wrong, so every flag is a false alarm. Constants of the judge are not
adjusted to these runs; the second draw was made after the first was judged and differs in kind:
other layers and losses, sizes at random, and weights that have been trained for some steps.

Headroom is a test's value over its bound. A leg of a captured iteration is end to end (`real`,
`fp32`) or isolated (every module works on the reference's values). One row stands for all
candidates of one model; the largest headroom is over all tensors and candidates.
"""
TREND = """
## Headroom against size

Of the first draw: the largest headroom of each test in each leg, over all tensors and candidates,
and the slope of its logarithm against the logarithm of the size with its standard error (0: no
trend; 1: grows as the size does). A slope that is more than twice its standard error above zero is
marked `*`, if the headroom reaches 0.1 anywhere.
"""
NAMES = {
    "hidden": "hidden size",
    "layers": "number of layers",
    "seq": "sequence length",
    "vocab": "vocabulary",
    "heads": "TP 4 and 8 (heads)",
}


def write_table(path: Path, runs: list[dict]) -> None:
    text = [HEAD, _summary(runs)]
    for draw, title in ((1, "First draw: one dimension at a time"), (2, "Second draw")):
        chosen = [run for run in runs if run["draw"] == draw]
        if chosen:
            text += [f"\n## {title}\n", *_models(chosen)]
    text.append(TREND)
    first = [run for run in runs if run["draw"] == 1]
    for axis, name in NAMES.items():
        for bf16 in (True, False):
            text += _trend([r for r in first if r["axis"] == axis and r["bf16"] == bf16], name)
    path.write_text("\n".join(text) + "\n")


def _clean(run: dict) -> bool:
    return run["verdict"] in ("within", "bitwise_equal")


def _worst(runs: list[dict], isolated: bool | None = None) -> tuple[float, str]:
    """The largest headroom and what has it."""
    found = [
        (value, f"{test} of {tensor}")
        for run in runs
        for test, (value, tensor) in run["headroom"].items()
        if isolated is None or ("isolated" in test) == isolated
    ]
    return max(found, default=(0.0, ""))


def _summary(runs: list[dict]) -> str:
    alarms = [run for run in runs if run["culprits"] or run["verdict"] == "diverged"]
    undecided = [run for run in runs if not _clean(run) and run not in alarms]
    worst, where = _worst(runs)
    lines = [
        f"- {len(runs)} runs of {len({(r['draw'], r['flags']) for r in runs})} models, "
        f"{sum(run['tests'] for run in runs):,} tests.",
        f"- False alarms: {len(alarms)}. Undecided: {len(undecided)}.",
        f"- Largest headroom of any test: {worst:.2f}, {where}.",
    ]
    lines += [f"- {_title(run)}, {run['candidate']}: {run['reason']}" for run in alarms + undecided]
    return "\n".join(lines)


def _title(run: dict) -> str:
    return f"{run['axis']} {run['size']} {'bf16' if run['bf16'] else 'fp32'}"


def _models(runs: list[dict]) -> list[str]:
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for run in runs:
        groups[(run["axis"], run["size"], run["bf16"], run["flags"])].append(run)
    lines = [
        "| model | candidates | within | tests | end to end | isolated | nearest to its bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for (axis, size, bf16, flags), group in sorted(groups.items(), key=lambda item: item[0][:3]):
        model = f"{axis} {size}, {'bf16' if bf16 else 'fp32'}"
        if group[0]["draw"] == 2:
            model = f"`{flags}`"
        lines.append(
            f"| {model} | {', '.join(run['candidate'] for run in group)} | "
            f"{sum(map(_clean, group))} of {len(group)} | {sum(run['tests'] for run in group):,} | "
            f"{_worst(group, False)[0]:.2f} | {_worst(group, True)[0]:.2f} | {_worst(group)[1]} |"
        )
    return lines


def _trend(runs: list[dict], name: str) -> list[str]:
    sizes = sorted({run["size"] for run in runs})
    if not sizes:
        return []
    precision = "bf16" if runs[0]["bf16"] else "fp32"
    lines = [
        f"\n### {name}, {precision}\n",
        f"| test | {' | '.join(map(str, sizes))} | slope |",
        "|---|" + "---|" * (len(sizes) + 1),
    ]
    for test in sorted({test for run in runs for test in run["headroom"]}):
        points = [
            (run["size"], run["candidate"], float(run["headroom"][test][0]))
            for run in runs
            if test in run["headroom"]
        ]
        largest = [max((v for s, _, v in points if s == size), default=0.0) for size in sizes]
        lines.append(
            f"| {test} | {' | '.join(f'{value:.2g}' for value in largest)} | "
            f"{_slope(points, max(largest))} |"
        )
    return lines


def _slope(points: list[tuple[int, str, float]], largest: float) -> str:
    """Of log headroom against log size, each candidate with a level of its own."""
    by_candidate: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for size, candidate, value in points:
        if value > 0:
            by_candidate[candidate].append((math.log(size), math.log(value)))
    residuals: list[tuple[float, float]] = []
    for pairs in by_candidate.values():
        mean_x = sum(x for x, _ in pairs) / len(pairs)
        mean_y = sum(y for _, y in pairs) / len(pairs)
        residuals += [(x - mean_x, y - mean_y) for x, y in pairs]
    xx = sum(x * x for x, _ in residuals)
    xy = sum(x * y for x, y in residuals)
    freedom = len(residuals) - len(by_candidate) - 1
    if xx == 0 or freedom < 1:
        return "-"
    slope = xy / xx
    error = math.sqrt(sum((y - slope * x) ** 2 for x, y in residuals) / freedom / xx)
    mark = " *" if slope > 2 * error and largest >= 0.1 else ""
    return f"{slope:+.2f} ± {error:.2f}{mark}"
