"""From a result.json and what a mutant did: found or not, how far off, and named how."""

from __future__ import annotations

import math
from typing import Any

# What may be said of a mechanism. Where nothing is listed silence is right.
_CLASSES = {
    ("drop", "all_reduce"): "PR",
    ("drop", "reduce_scatter_tensor"): "PRW",
    ("drop", "all_gather_into_tensor"): "MWP",
    ("double", "all_reduce"): "K",
    ("double", "reduce_scatter_tensor"): "K",
    ("delay", ""): "S",
    ("permute", ""): "XW",
    ("group", ""): "WPRKX",
    ("scale", ""): "K",
    ("skip", ""): "R",
}
# A fault of a tensor -> the role of the record that shows it first.
_ROLES = {
    "output": ("output",),
    "weight": ("output",),
    "grad_input": ("grad_input",),
    "grad_local": ("grad_local",),
    "grad_reduced": ("grad_reduced",),
    "update": ("param_updated",),
}


def happened(log: list[dict[str, Any]], iteration: int) -> dict[str, Any] | None:
    """The mutant of an iteration over all ranks, or None if it changed no number."""
    lines = [line for line in log if line.get("iteration") == iteration]
    real = [line for line in lines if line["run"] == 0]
    error = sum(line["error"] for line in real)
    if not real or not error > 0:
        return None
    truth = sum(line["truth"] for line in real)
    first = real[0]
    keys = ("family", "mechanism", "ranks", "size", "seed", "micro_batch", "site", "stage")
    reruns = {line["run"] for line in lines} - {0}
    quiet = [
        run
        for run in sorted(reruns)
        if not sum(line["error"] for line in lines if line["run"] == run) > 0
    ]
    return {
        **{key: first[key] for key in keys},
        "relative": math.sqrt(error / truth) if truth > 0 else math.inf,
        "holders": [line["rank"] for line in real if line["holds"]],
        "reruns": len(reruns),
        "quiet_reruns": len(quiet),
    }


def judge_clean(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": result["verdict"],
        "culprits": [_short(culprit) for culprit in result["culprits"][:3]],
        "headroom": worst_headroom(result),
        "reason": result["reason"],
        "not_repeatable": _not_repeatable(result),
    }


def judge_mutant(
    result: dict[str, Any], mutant: dict[str, Any], modules: list[str]
) -> dict[str, Any]:
    out = judge_clean(result)
    out["detected"] = bool(result["culprits"])
    if not out["detected"]:
        out["why_missed"] = why_missed(result, mutant)
        return out
    first = result["culprits"][0]
    out["window"] = window(first, mutant, modules)
    direction = mutant["site"]["direction"]
    out["direction_right"] = not direction or first["direction"] == direction
    out["stage_right"] = first["stage"] == stage_of(mutant)
    allowed = classes_of(mutant)
    named = [entry["class"] for entry in first["classes"]]
    if not allowed:
        out["class"] = "none promised"
    elif not named:
        out["class"] = "silent"
    else:
        out["class"] = "right" if named[0] in allowed else "wrong"
    return out


def classes_of(mutant: dict[str, Any]) -> str:
    site, mechanism = mutant["site"], mutant["mechanism"]
    if site["phase"] == "optimizer" and mutant["family"] == "collective":
        return "G"
    if mechanism == "double" and mutant["ranks"] == "one":
        return ""  # one rank's part twice: no class says that
    allowed = _CLASSES.get((mechanism, site["kind"]), _CLASSES.get((mechanism, ""), ""))
    # Where one rank alone is at fault its copies differ from the others'.
    return allowed + "R" if allowed and mutant["ranks"] == "one" else allowed


def stage_of(mutant: dict[str, Any]) -> str:
    if mutant["site"]["phase"] == "optimizer":
        return "optimizer"
    # A reduced gradient is what its reduction made of it.
    communicates = mutant["family"] in ("collective", "grad_reduced")
    return "communication" if communicates else "compute"


def expected_roles(mutant: dict[str, Any]) -> tuple[str, ...]:
    if mutant["family"] != "collective":
        return _ROLES[mutant["family"]]
    return {
        "finalize": ("grad_reduced",),
        "optimizer": ("grad_norm",),
        "forward": ("output", "input"),
        "backward": ("grad_input", "grad_local"),
    }.get(mutant["site"]["phase"], ("input", "output", "grad_output", "grad_input"))


def window(first: dict[str, Any], mutant: dict[str, Any], modules: list[str]) -> int | None:
    """Recorded modules between the place that was named and the injected one; 0 is exact. None:
    the place cannot be counted from there."""
    site = mutant["site"]
    fqn = first["fqn"]
    if mutant["family"] in ("grad_local", "grad_reduced", "update"):
        if fqn == site["fqn"]:
            return 0
        injected = [site["fqn"].rpartition(".")[0]]
    elif site["phase"] in ("finalize", "optimizer"):
        return 0 if first["role"] in expected_roles(mutant) else None
    elif site["phase"] == "between":
        injected = _ends(mutant, modules)
    else:
        injected = [site["fqn"]]
    # A parameter stands for its module.
    owners = [fqn.rpartition(".")[0]] if "." in fqn else []
    named = next((name for name in (fqn, *owners) if name in modules), None)
    places = [modules.index(name) for name in injected if name in modules]
    if named is None or not places:
        return None
    return min(abs(modules.index(named) - place) for place in places)


def _ends(mutant: dict[str, Any], modules: list[str]) -> list[str]:
    """The layers on both sides of a send between two stages, and what holds them: the code between
    modules has no name of its own."""
    layers = sorted(
        {
            int(name.split(".")[2])
            for name in modules
            if name.startswith("decoder.layers.") and len(name.split(".")) == 3
        }
    )
    middle = len(layers) // 2
    return [f"decoder.layers.{layers[middle - 1]}", f"decoder.layers.{layers[middle]}", "decoder"]


def why_missed(result: dict[str, Any], mutant: dict[str, Any]) -> str:
    """What the result says of the tensors that show the fault first."""
    roles, fqn = expected_roles(mutant), mutant["site"]["fqn"]
    anywhere = mutant["site"]["phase"] in ("finalize", "optimizer", "between")
    anywhere = anywhere and mutant["family"] == "collective"
    shown = [
        tensor
        for tensor in result["tensors"]
        if tensor["role"] in roles and (anywhere or tensor["fqn"] == fqn)
    ]
    if not shown:
        return f"not observed: no {' or '.join(roles)} of {fqn or 'the model'} is recorded"
    if mutant["family"] == "update" and not any("replicas" in tensor for tensor in shown):
        return "an update is judged by its copies: there is no other copy"
    if mutant["family"] == "update" and mutant["ranks"] == "all":
        return "an update is judged by its copies: all of them skip it"
    judged = [t for t in shown if not t["explained"] and t["verdict"] != "not_checkable"]
    if not judged:
        return f"not judged: {shown[0]['reason']}"
    worst = max(judged, key=_headroom)
    legs = worst["legs"]
    if not legs:
        return f"{worst['verdict']}: {worst['reason']}"
    leg = max(legs, key=lambda leg: float(leg["headroom"] or 0))
    return (
        f"within the bound: {worst['role']} of {worst['fqn'] or 'the model'} in {leg['leg']}: "
        f"error {float(leg['err']):.1e}, bound {float(leg['bound']):.1e}"
    )


def worst_headroom(result: dict[str, Any]) -> float:
    return max((_headroom(t) for t in result["tensors"] if not t["explained"]), default=0.0)


def _headroom(tensor: dict[str, Any]) -> float:
    return float(tensor["headroom"] or 0)


def _not_repeatable(result: dict[str, Any]) -> str:
    return next((note for note in result["notes"] if "not reproduced bit by bit" in note), "")


def _short(culprit: dict[str, Any]) -> dict[str, Any]:
    keys = ("fqn", "role", "direction", "stage", "headroom", "ranks")
    return {
        **{key: culprit[key] for key in keys},
        "classes": [f"{entry['class']}: {entry['evidence']}" for entry in culprit["classes"]],
    }
