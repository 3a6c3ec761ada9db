"""docs/evidence/loop_mutants.md from the results of all seeds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from loop_mutation.outcome import judged
from loop_mutation.plan import KINDS
from mutation.loops.mutant import FAULTS, LoopMutant

Row = dict[str, Any]
WAYS = ("here", "apart")

_HEADER = """# Mutants in plain loops

Written by `scripts/loop_mutants.py`. A fault of one mechanism (`zoo/mutation/loops`) is planted in
a plain torch loop (`zoo/train_loop.py`), at a place drawn from a seed, from iteration 0 or 1 on.
`ttrace diff` compares three iterations with a right run of fewer ranks (of as many, where a batch
norm's statistics are those of a rank), twice: with all legs in one launch, and with
`--launch-per-leg`. The reference has six legs (a replay, three with noise, two of isolated modules
with noise), recorded once in each way; the candidate two (a replay, isolated modules).

A mutant counts if it changes a gradient or what a step leaves, in two runs without a tool. *Found*
is one with a culprit; *open* one that is undecided, for a reason that is said; *missed* one that is
within bounds. *Place* is right where the first culprit is the module, parameter or loss in which
the fault was put, and its record of the kind that shows it first. *Class* is right where the first
one named is one of those that the mechanism may have; silent where none is named. *Same* holds
verdict, first place, role, stage, iteration and first class of the two ways against each other. An
experiment is named by seed and number: `scripts/loop_mutants.py --seed 1 --only 17 --keep` makes
1:17 again.
"""


def write_table(path: Path, lines: list[Row]) -> None:
    honest = [line for line in lines if "mutant" not in line]
    planted = [line for line in lines if "mutant" in line]
    failed = [line for line in lines if "failed" in line]
    rows = [_judged(line) for line in planted if "here" in line]
    rows.sort(key=lambda row: (row["seed"], row["number"]))
    seeds = sorted({row["seed"] for row in planted})
    lines_of = [
        _HEADER,
        f"- Seeds {', '.join(map(str, seeds))}: {len(rows)} mutants that changed something, of"
        f" {len({row['mutant']['name'] for row in rows})} mechanisms;"
        f" {len(planted) - len(rows) - sum('mutant' in line for line in failed)} more drew a place"
        " where they change nothing.",
        *(_summary(f"- {words}", rows, way) for words, way in _WORDS),
        f"- Same in both ways: {sum(not row['differing'] for row in rows)} of {len(rows)}.",
        f"- Honest loops: {_honest(honest)}",
        f"- Honest iterations, before the first with a fault: {_before(rows)}",
        *([f"- Launches that failed: {_names(failed)}."] if failed else []),
        "",
        *_by_mechanism(rows),
        *_by_loop(rows, honest),
        *_list("Accused without a fault", _accused(rows, honest)),
        *_list("Missed", [_line(row) for row in rows if _state(row["here"]) == "missed"]),
        *_list("Open", [_line(row) for row in rows if _state(row["here"]) == "open"]),
        *_list("Another place", [_line(row) for row in rows if row["here"].get("place") is False]),
        *_list(
            "Another class", [_line(row) for row in rows if row["here"].get("class") == "wrong"]
        ),
        *_list("Not the same in both ways", [_both(row) for row in rows if row["differing"]]),
        *_list("Not run again in place", [_launched(row) for row in rows if row["why_launched"]]),
    ]
    path.write_text("\n".join(lines_of).rstrip() + "\n")


# Of what is not found, by mechanism.
_WHY = {
    "clip each": "Norms of single parameters are not the norm of all, and no other was seen",
    "accumulation dropped": "A forward without a backward looks like two forwards of one loss",
    "ddp buffers": "A statistic of a rank's own rows is no fault where nothing is computed with it",
    "module dropout": "Dropout is off in both runs; a call that one run alone has is a note",
    "precision raised": "It moves nothing by more than its precision rounds",
    "optimizer skipped": (
        "The state that the step needs is not there, so that it is not made again, and no other"
        " rule asks whether the parameter moved at all"
    ),
    "module activation": "It moves nothing by more than its precision rounds",
    "ddp exchanged": "A bias before a norm has a gradient of round-off: no bound means much",
}
_IN_BF16 = "Legs in fp32, which a launch for each leg cannot have, were not asked for"
_OWN_HOOK = (
    "In one launch legs do not reduce gradients where a hook of the loop's own does: they are"
    " judged in the run as it was alone"
)
_WORDS = (("In one launch", "here"), ("A launch for each leg", "apart"))


def _judged(line: Row) -> Row:
    """By what is asked of a mechanism now."""
    mutant = LoopMutant(**line["mutant"])
    return {
        **line,
        **{way: {**line[way], **judged(mutant, line["blamed"], line[way])} for way in WAYS},
    }


def _state(outcome: Row) -> str:
    if outcome["found"]:
        return "found"
    return "open" if outcome["verdict"] == "inconclusive" else "missed"


def _summary(words: str, rows: list[Row], way: str) -> str:
    states = Counter(_state(row[way]) for row in rows)
    found = [row[way] for row in rows if row[way]["found"]]
    classes = Counter(outcome["class"] for outcome in found)
    return (
        f"{words}: {states['found']} found, {states['open']} open, {states['missed']} missed; place"
        f" right {sum(o['place'] for o in found)} of {len(found)}; class right"
        f" {classes['right']}, wrong {classes['wrong']}, silent {classes['silent']}."
    )


def _honest(lines: list[Row]) -> str:
    judgements = [line[way] for line in lines if "here" in line for way in WAYS]
    within = sum(outcome["verdict"] in ("within", "bitwise_equal") for outcome in judgements)
    accused = sum("fqn" in outcome for outcome in judgements)
    return (
        f"{len(judgements)} comparisons ({len(KINDS)} loops, both ways), {within} within bounds,"
        f" {accused} accused."
    )


def _before(rows: list[Row]) -> str:
    count = sum(row["mutant"]["since"] for row in rows for _ in WAYS)
    return f"{count}, accused {sum(row[way]['accused'] for row in rows for way in WAYS)}."


def _names(rows: Iterable[Row]) -> str:
    return ", ".join(f"{row['seed']}:{row['number']}" for row in rows)


def _cells(rows: list[Row]) -> list[str]:
    here = [row["here"] for row in rows]
    found = [outcome for outcome in here if outcome["found"]]
    states = Counter(map(_state, here))
    classes = Counter(outcome["class"] for outcome in found)
    return [
        str(len(rows)),
        *(str(states[state] or "") for state in ("found", "open", "missed")),
        str(sum(outcome["place"] for outcome in found) or ""),
        *(str(classes[kind] or "") for kind in ("right", "wrong", "silent")),
        str(sum(not row["differing"] for row in rows)),
    ]


_COLUMNS = "mutants | found | open | missed | place | class right | wrong | silent | same"


def _by_mechanism(rows: list[Row]) -> list[str]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["mutant"]["name"]].append(row)
    lines = [f"| mechanism | what | {_COLUMNS} |", f"|{'---|' * (_COLUMNS.count('|') + 3)}"]
    for name, own in sorted(groups.items()):
        lines.append(f"| {name} | {_what(name)} | {' | '.join(_cells(own))} |")
    lines.append(f"| all | | {' | '.join(_cells(rows))} |")
    return ["## By mechanism", "", *lines, ""]


def _what(name: str) -> str:
    """The first sentence of what plants it."""
    text = (FAULTS[name].plant.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split()).rstrip(".").replace("|", "/")


def _by_loop(rows: list[Row], honest: list[Row]) -> list[str]:
    verdicts = {line["kind"]: line.get("here", {}).get("verdict", "failed") for line in honest}
    lines = [f"| loop | itself | {_COLUMNS} |", f"|{'---|' * (_COLUMNS.count('|') + 3)}"]
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        lines.append(f"| {kind} | {verdicts.get(kind, '')} | {' | '.join(_cells(own))} |")
    return ["## By loop", "", *lines, ""]


def _list(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "", *([f"- {line}" for line in lines] or ["None."]), ""]


def _mutant(row: Row) -> str:
    mutant = row["mutant"]
    own = ", ".join(f"`{name or 'the model'}`" for name in row["blamed"][:1])
    ranks = "" if mutant["ranks"] == "all" else ", one rank"
    return (
        f"{row['seed']}:{row['number']} {mutant['name']} ({row['kind']}{ranks}) at {own} from"
        f" iteration {mutant['since']}, changes {row['relative']:.1e}"
    )


def _said(outcome: Row) -> str:
    if not outcome["found"]:
        return f"{outcome['verdict']}: {outcome['reason']}"
    letters = " ".join(outcome["letters"]) or "no class"
    return (
        f"`{outcome['fqn'] or 'the model'}` {outcome['role']}, {outcome['stage']}, iteration"
        f" {outcome['iteration']}, {letters}, headroom {outcome['headroom']:.2g}"
    )


def _line(row: Row) -> str:
    return f"{_mutant(row)}: {_said(row['here'])}{_why(row)}"


def _both(row: Row) -> str:
    said = f"in one launch {_said(row['here'])}; apart {_said(row['apart'])}"
    return f"{_mutant(row)}: {said}{_why(row)}"


def _why(row: Row) -> str:
    """What is known of it."""
    words = []
    if row["kind"] in KINDS and KINDS[row["kind"]].options.hook and row["differing"]:
        words.append(_OWN_HOOK)
    if not row["here"]["found"]:
        words.append(_WHY.get(row["mutant"]["name"], ""))
        if KINDS[row["kind"]].options.precision == "bf16":
            words.append(_IN_BF16)
    return "".join(f". {text}" for text in words if text)


def _launched(row: Row) -> str:
    return f"{_mutant(row)}: {row['why_launched']}"


def _accused(rows: list[Row], honest: list[Row]) -> list[str]:
    found = [
        f"{line['kind']}, {way}: `{line[way]['fqn']}` {line[way]['role']}, headroom"
        f" {line[way]['headroom']:.2g}"
        for line in honest
        if "here" in line
        for way in WAYS
        if "fqn" in line[way]
    ]
    return found + [
        f"{_mutant(row)}, {way}: {_said(row[way])}"
        for row in rows
        for way in WAYS
        if row[way]["accused"]
    ]
