"""Finds the bugs of `zoo/bugs` and the faults of `zoo/planted` by file name or by ID. Importing one
injects nothing.

A file's name begins with its ID in lower case, `_` for `-`: `t3_cp_gradient_scale.py` is T3,
`m7452_6_sequence_slice.py` is M7452-6.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "bugs"
_PLANTED = _FOLDER.parent / "planted"
# Letters and numbers of the ID. What comes after them begins with a letter.
_STEM = re.compile(r"([a-z]+)(\d+)(?:_(\d+))?_[a-z]\w*")
# The table of the paper comes first, then the others by origin.
_FAMILIES = ("t", "mg", "m", "ot", "hf", "ds", "do")


def names() -> list[str]:
    """File names without their ending: the paper's table first, then by family and number."""
    return _names_in(_FOLDER)


def planted() -> list[str]:
    """File names of the faults that no report stands behind."""
    return _names_in(_PLANTED)


def _names_in(folder: Path) -> list[str]:
    return sorted(
        (path.stem for path in folder.glob("*.py") if _STEM.fullmatch(path.stem)), key=_order
    )


def _order(stem: str) -> tuple[int, str, int, int]:
    family, number, part = _parts(stem)
    known = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
    return known, family, int(number), int(part or 0)


def _parts(stem: str) -> tuple[str, str, str | None]:
    match = _STEM.fullmatch(stem)
    assert match is not None, stem
    return match[1], match[2], match[3]


def bug_id(stem: str) -> str:
    """`m7452_6_sequence_slice` -> "M7452-6"."""
    family, number, part = _parts(stem)
    return f"{family}{number}".upper() + (f"-{part}" if part else "")


def load(name: str) -> ModuleType:
    """The module of a bug. `name` is its file name (`t3_cp_gradient_scale`) or ID (`T3`)."""
    everything = [*names(), *planted()]
    matching = [stem for stem in everything if name == stem or name.upper() == bug_id(stem)]
    if not matching:
        raise SystemExit(f"no bug is called {name!r}; there are: {', '.join(everything)}")
    folder = _FOLDER if matching[0] in names() else _PLANTED
    spec = importlib.util.spec_from_file_location(
        f"zoo_bug_{matching[0]}", folder / f"{matching[0]}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_flags(bug: ModuleType) -> tuple[str, ...]:
    """What of `FLAGS` a reference needs too: the model and the data, not the topology."""
    return tuple(getattr(bug, "SHARED_FLAGS", ()))


def own_flags(bug: ModuleType) -> tuple[str, ...]:
    """The rest of `FLAGS`: the topology, which only the candidate has."""
    return tuple(bug.FLAGS[: len(bug.FLAGS) - len(reference_flags(bug))])


def is_control(bug: ModuleType) -> bool:
    """Nothing must be said of it."""
    return bool(bug.EXPECT.get("clean"))


def disagreements(result: dict[str, Any], *expected: dict[str, Any]) -> list[str]:
    """What in a result.json is not as the EXPECTs of the injected bugs say: the first culprit of
    a bug alone, some culprit for each of several, nobody else, and of a control the verdict."""
    culprits = result["culprits"]
    if expected[0].get("clean"):
        wrong = [f"it names {', '.join(c['fqn'] for c in culprits)}"] if culprits else []
        if result["verdict"] not in ("within", "bitwise_equal"):
            wrong.append(f"the verdict is {result['verdict']}")
        return wrong
    if not culprits:
        return ["no culprit was found"]
    wrong = []
    for bug in expected:
        candidates = culprits[:1] if len(expected) == 1 else culprits
        wrong += min((_disagreements_of(culprit, bug) for culprit in candidates), key=len)
    patterns = [p for bug in expected for p in (*bug["fqn"], *bug.get("affected", ()))]
    strangers = [
        culprit["fqn"]
        for culprit in culprits
        if not any(re.fullmatch(pattern, culprit["fqn"]) for pattern in patterns)
    ]
    return wrong + ([f"it also names {', '.join(strangers)}"] if strangers else [])


def _disagreements_of(culprit: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    wrong = []
    if not any(re.fullmatch(pattern, culprit["fqn"]) for pattern in expected["fqn"]):
        wrong.append(f"it names {culprit['fqn']}")
    exact = {"first": "fqn", "direction": "direction", "stage": "stage", "iteration": "iteration"}
    for key, name in exact.items():
        if key in expected and culprit.get(name) != expected[key]:
            wrong.append(f"{name} is {culprit.get(name)}, not {expected[key]}")
    letters = [found["class"] for found in culprit["classes"]]
    # A class where none is expected is a wrong one.
    if (letters[0] if letters else None) not in (expected["classes"] or [None]):
        wrong.append(f"classes are {letters}, not of {expected['classes']}")
    return wrong
