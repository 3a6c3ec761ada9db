"""From a result.json and what a mutant did: found or not, how far off, and named how."""

from __future__ import annotations

import math
import sys
from typing import Any

from mutation_sweep.plan import ROOT

sys.path.insert(0, str(ROOT / "zoo"))
from mutation.mutant import ACROSS_STAGES

# What may be said of a mechanism.
_CLASSES = {
    ("drop", "all_reduce"): "PR",
    ("drop", "reduce_scatter_tensor"): "PRW",
    ("drop", "all_gather_into_tensor"): "MWP",
    ("drop", "all_to_all_single"): "MWX",
    ("double", "all_reduce"): "K",
    ("double", "reduce_scatter_tensor"): "K",
    ("delay", ""): "S",
    ("permute", ""): "XW",
    ("group", ""): "WPRKX",
    ("scale", ""): "K",
    ("skip", ""): "SR",
}
# A fault of a tensor -> the role of the record that shows it first.
_ROLES = {
    "output": ("output",),
    "weight": ("output",),
    "grad_input": ("grad_input",),
    "grad_local": ("grad_local",),
    "grad_reduced": ("grad_reduced",),
    "update": ("param_updated",),
    "setting": ("param_updated",),
    "mask": (),  # no values show it: dropout is off
    "route": ("output",),
}
# What a module is given, by code of its parent.
_EDGES = ("input", "grad_output")
# What the optimizer communicates beside a norm: the parameters that the distributed one gathers.
_GATHERED = "all_gather_into_tensor"
# Tensors of the model's precision, whose low precision rounds a small factor away.
_LOW = ("output", "grad_input")
# So many of a culprit are kept.
_TESTS = 4


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
    more = ("partner", "share", "ends")
    reruns = {line["run"] for line in lines} - {0}
    quiet = [
        run
        for run in sorted(reruns)
        if not sum(line["error"] for line in lines if line["run"] == run) > 0
    ]
    return {
        **{key: first[key] for key in keys},
        **{key: first[key] for key in more if key in first},
        **_parameters(real),
        "relative": math.sqrt(error / truth) if truth > 0 else math.inf,
        "holders": [line["rank"] for line in real if line["holds"]],
        "reruns": len(reruns),
        "quiet_reruns": len(quiet),
    }


def _parameters(lines: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Those of a setting: each rank of a distributed optimizer steps others."""
    lists = [line["parameters"] for line in lines if line["holds"] and "parameters" in line]
    return {"parameters": sorted(set().union(*lists))} if lists else {}


def in_order(log: list[dict[str, Any]]) -> list[str]:
    """The modules of the whole model in the order in which they finish. Virtual stages come one
    chunk after the other; ranks have experts that others have not."""
    chunks: dict[tuple[int, int], list[str]] = {}
    for line in log:
        if "modules" in line:
            known = chunks.setdefault((line.get("chunk", 0), line["stage"]), [])
            place = len(known)
            for name in reversed(line["modules"]):
                if name in known:
                    place = known.index(name)
                else:
                    known.insert(place, name)
    modules: list[str] = []
    for key in sorted(chunks):
        modules += [name for name in chunks[key] if name not in modules]
    return modules


def judge_clean(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": result["verdict"],
        "culprits": [_short(culprit) for culprit in result["culprits"][:3]],
        "headroom": worst_headroom(result),
        "reason": result["reason"],
        "not_repeatable": _not_repeatable(result),
        "tests": tests_of(result),
    }


def judge_mutant(
    result: dict[str, Any], mutant: dict[str, Any], modules: list[str]
) -> dict[str, Any]:
    out = judge_clean(result)
    # After a mutant's step the moments are put back, and capture sees that.
    culprits = [c for c in result["culprits"] if c["found_by"] != ["states"]]
    out["detected"] = bool(culprits)
    if not out["detected"]:
        out["why_missed"] = why_missed(result, mutant)
        return out
    first = culprits[0]
    out["window"] = window(first, mutant, modules)
    direction = mutant["site"]["direction"]
    out["direction_right"] = not direction or first["direction"] == direction
    out["stage_right"] = first["stage"] in stage_of(mutant)
    right, promised = classes_of(mutant)
    named = [entry["class"] for entry in first["classes"]]
    if not named:
        out["class"] = "silent" if promised else "none promised"
    else:
        out["class"] = "right" if named[0] in right else "wrong"
    return out


def classes_of(mutant: dict[str, Any]) -> tuple[str, bool]:
    """The letters that are right, and whether silence is not."""
    site, mechanism, kind = mutant["site"], mutant["mechanism"], mutant["site"]["kind"]
    one = mutant["ranks"] == "one"
    if mutant["family"] == "mask":
        return "U", True
    if mutant["family"] == "setting":
        return "HR"[: 1 + one], True  # one rank's own step tears copies apart
    if mechanism == "gain":
        # In low precision no element moves by just that factor, but by 0, 1 or 2 units.
        return "KR"[: 1 + one], not (mutant["bf16"] and mutant["family"] in _LOW)
    if mechanism == "piece":
        # Values by themselves have moved, or slices of few elements: X where they are enough.
        return "XR", False
    if mechanism in ("unsteady", "once"):
        # Each rank's error is its own, so that copies differ.
        return "IR", True
    if mutant["family"] == "route":
        # Weights of all experts of a token, one place on: X or W where they are enough.
        return "XWR", False
    if mutant["family"] not in ("collective", "update"):
        # Half of those that hit all of a tensor scale it.
        return ("KR" if mechanism == "all" else "R"), False
    if mutant["family"] == "collective" and site["phase"] == "optimizer":
        return _classes_of_gather(mutant) if kind == _GATHERED else ("G", True)
    letters = _CLASSES.get((mechanism, kind), _CLASSES.get((mechanism, ""), ""))
    if one and mechanism == "double" and site["phase"] == "finalize":
        letters += "S"  # a data-parallel rank's term is its micro-batches, counted twice
    mixed = mutant["family"] == "collective" and _is_mixed(mutant)
    if mixed or (one and (mechanism, kind) in _MIXTURES):
        return letters + "R", False
    # Where one rank alone is at fault its copies differ from the others'. Of a sum across
    # pipeline stages every fault is one rank's.
    return letters + "R" * (one or site["group"] == ACROSS_STAGES), True


def _classes_of_gather(mutant: dict[str, Any]) -> tuple[str, bool]:
    """Of parameters, in place: one that is not made leaves what was there before the step."""
    letters = {"drop": "S", "permute": "XW", "scale": "K", "group": "SWX"}[mutant["mechanism"]]
    return letters + "R", True  # each rank's own part is right, so that copies differ


# One rank's fault in what it gives, or takes twice: a sum of right and wrong terms.
_MIXTURES = {
    ("permute", "reduce_scatter_tensor"),
    ("double", "all_reduce"),
    ("double", "reduce_scatter_tensor"),
}


def _is_mixed(mutant: dict[str, Any]) -> bool:
    """Whether what is communicated passes through other arithmetic before any tensor that is
    recorded: no recorded value is then a factor, a part or a rearrangement of another."""
    site = mutant["site"]
    in_loss = site["phase"] == "forward" and site["fqn"] == ""  # sums of exponentials
    gathers = site["kind"] == "all_gather_into_tensor"
    keys_and_values = gathers and site["fqn"].endswith("core_attention")
    # Rows come back from a token's experts and are summed; on the way there they are sorted.
    of_experts = _is_of_experts(mutant)
    # Sequence parallelism gathers a linear layer's input once more for its weight's gradient.
    in_backward = gathers and site["phase"] == "backward"
    return in_loss or keys_and_values or of_experts or in_backward


def _is_of_experts(mutant: dict[str, Any]) -> bool:
    """Whether it is communication between a router and experts."""
    communicates = mutant["family"] == "collective" and mutant["experts"]
    return communicates and mutant["site"]["fqn"].endswith(".mlp")


def stage_of(mutant: dict[str, Any]) -> tuple[str, ...]:
    """The stages that would be right."""
    phase = mutant["site"]["phase"]
    if phase == "optimizer" and mutant["site"]["kind"] == _GATHERED:
        return ("optimizer", "communication")
    if phase == "optimizer":
        return ("optimizer",)
    if mutant["family"] == "collective" and phase != "finalize":
        # Inside a module: communication where copies show it, else nobody can tell.
        return ("compute", "communication")
    # A reduced gradient is what its reduction made of it.
    communicates = mutant["family"] in ("collective", "grad_reduced")
    return ("communication",) if communicates else ("compute",)


def of_attention(mutant: dict[str, Any]) -> bool:
    """Whether a mask is that of attention probabilities."""
    return mutant["site"]["fqn"].endswith("attention_dropout")


def expected_roles(mutant: dict[str, Any]) -> tuple[str, ...]:
    if mutant["family"] != "collective":
        return _ROLES[mutant["family"]]
    if mutant["site"]["phase"] == "optimizer" and mutant["site"]["kind"] == _GATHERED:
        return ("param_updated",)
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
    if mutant["family"] == "setting":
        return 0 if fqn in mutant["parameters"] else None
    if mutant["family"] == "mask" and fqn in (site["fqn"], mutant.get("partner", site)["fqn"]):
        return 0
    if mutant["family"] in ("grad_local", "grad_reduced", "update"):
        if fqn == site["fqn"]:
            return 0
        injected = [site["fqn"].rpartition(".")[0]]
    elif site["phase"] in ("finalize", "optimizer"):
        return 0 if first["role"] in expected_roles(mutant) else None
    elif site["phase"] == "between":
        injected = _ends(mutant, modules)
    elif _is_of_experts(mutant) and first["role"] in _EDGES and fqn.startswith(site["fqn"] + "."):
        return 0  # the layer's own code brings rows to its router and experts
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
    if "ends" in mutant:
        return [*mutant["ends"], "decoder"]
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
    if mutant["family"] == "mask" and of_attention(mutant):
        # The zoo's models are young: each token attends to all before it almost alike.
        return "not judged: inputs that are near copies, as those of near uniform attention are"
    if mutant["family"] in ("mask", "setting"):
        return f"the {mutant['family']}s that were noted show nothing"
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
        return "too short a step to tell that it was not made, and there is no other copy"
    if mutant["family"] == "update" and mutant["ranks"] == "all":
        return "too short a step to tell that it was not made, and all copies skip it"
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


def tests_of(result: dict[str, Any]) -> list[str]:
    """What the first culprit was blamed for, the largest headroom first, and how replays did."""
    if not result["culprits"]:
        return []
    first = result["culprits"][0]
    found = [
        (float(test["headroom"] or 0), leg["leg"], test)
        for tensor in result["tensors"]
        if (tensor["fqn"], tensor["role"]) == (first["fqn"], first["role"])
        for leg in tensor["legs"]
        for test in leg.get("tests", ())
    ]
    found.sort(key=lambda entry: -entry[0])
    chosen = [e for i, e in enumerate(found) if i < _TESTS or e[2]["statistic"] == "repeat"]
    return [
        f"{leg} {test['statistic']}: {_number(test['value'])}, bound {_number(test['bound'])}"
        f" ({test['origin']})"
        for _, leg, test in chosen
    ]


def _number(value: Any) -> str:
    return f"{float(value or 0):.2g}"


def worst_headroom(result: dict[str, Any]) -> float:
    return max((_headroom(t) for t in result["tensors"] if not t["explained"]), default=0.0)


def _headroom(tensor: dict[str, Any]) -> float:
    return float(tensor["headroom"] or 0)


def _not_repeatable(result: dict[str, Any]) -> str:
    notes = result["notes"]
    return next((note["text"] for note in notes if note["kind"] == "not_repeatable"), "")


def _short(culprit: dict[str, Any]) -> dict[str, Any]:
    keys = ("fqn", "role", "direction", "stage", "headroom", "ranks")
    return {
        **{key: culprit[key] for key in keys},
        "classes": [f"{entry['class']}: {entry['evidence']}" for entry in culprit["classes"]],
    }
