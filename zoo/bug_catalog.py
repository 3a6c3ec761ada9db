"""Finds the bugs of `zoo/bugs` by file name or by ID. Importing one injects nothing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "bugs"


def names() -> list[str]:
    """File names without their ending, sorted by number."""
    stems = (path.stem for path in _FOLDER.glob("t*_*.py"))
    return sorted(stems, key=lambda stem: int(stem[1 : stem.index("_")]))


def load(name: str) -> ModuleType:
    """The module of a bug. `name` is its file name (`t3_cp_gradient_scale`) or ID (`T3`)."""
    matching = [stem for stem in names() if name == stem or name.lower() == stem.split("_")[0]]
    if not matching:
        raise SystemExit(f"no bug is called {name!r}; there are: {', '.join(names())}")
    spec = importlib.util.spec_from_file_location(
        f"zoo_bug_{matching[0]}", _FOLDER / f"{matching[0]}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def disagreements(result: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What in the first culprit of a result.json is not as a bug's EXPECT says."""
    if not result["culprits"]:
        return ["no culprit was found"]
    first = result["culprits"][0]
    wrong = []
    if not any(re.fullmatch(pattern, first["fqn"]) for pattern in expected["fqn"]):
        wrong.append(f"it names {first['fqn']}")
    for key, name in (("first", "fqn"), ("direction", "direction"), ("stage", "stage")):
        if key in expected and first[name] != expected[key]:
            wrong.append(f"{name} is {first[name]}, not {expected[key]}")
    letters = [found["class"] for found in first["classes"]]
    if not letters or letters[0] not in expected["classes"]:
        wrong.append(f"classes are {letters}, not of {expected['classes']}")
    return wrong
