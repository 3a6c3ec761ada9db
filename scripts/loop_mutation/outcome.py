"""What was said of a mutant, and whether that is right."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from mutation.loops.mutant import FAULTS, LoopMutant


def said(result: dict[str, Any]) -> dict[str, Any]:
    """The verdict and the first culprit; how many others."""
    out: dict[str, Any] = {"verdict": result["verdict"], "reason": result.get("reason", "")}
    culprits = result["culprits"]
    if culprits:
        first = culprits[0]
        out |= {key: first[key] for key in ("fqn", "role", "stage", "iteration")}
        out["letters"] = [entry["class"] for entry in first["classes"]]
        out["evidence"] = next((entry["evidence"] for entry in first["classes"]), "")
        out["headroom"] = float(first["headroom"] or 0)
        out["others"] = len(culprits) - 1
        out["iterations"] = sorted({culprit["iteration"] for culprit in culprits})
    return out


def same(here: dict[str, Any], apart: dict[str, Any]) -> list[str]:
    """What differs between two of them."""
    keys = ("verdict", "fqn", "role", "stage", "iteration")
    differing = [key for key in keys if here.get(key) != apart.get(key)]
    if here.get("letters", [])[:1] != apart.get("letters", [])[:1]:
        differing.append("class")
    return differing


def judged(mutant: LoopMutant | None, blamed: list[str], outcome: dict[str, Any]) -> dict[str, Any]:
    """found; place and class of the first culprit: right, wrong or (a class) silent; accused: an
    iteration in which nothing was wrong."""
    found = "fqn" in outcome
    if mutant is None:
        return {"accused": found}
    if not found:
        return {"found": False, "accused": False}
    expected = FAULTS[mutant.name]
    accused = min(outcome["iterations"]) < mutant.since - expected.before
    place = outcome["role"] in expected.roles and any(
        fnmatchcase(outcome["fqn"], pattern) for pattern in blamed
    )
    letter = next(iter(outcome["letters"]), "")
    kind = "silent" if not letter else "right" if letter in expected.letters else "wrong"
    return {"found": True, "accused": accused, "place": place, "class": kind}
