"""What one result says: a line of the results."""

from __future__ import annotations

import re
from typing import Any

# Their bounds are worst cases of a formula's own rounding, which honest steps reach.
WORST_CASES = ("step", "reported_norm")


def outcome(result: dict[str, Any]) -> dict[str, Any]:
    roles = _worst_of_roles(result)
    largest = max(
        (r for r in roles.values() if r["statistic"] not in WORST_CASES),
        key=lambda role: role["headroom"],
        default=None,
    )
    return {
        "verdict": result["verdict"],
        "exit_code": result["exit_code"],
        "reason": result["reason"],
        "culprits": [f"{c['fqn']} {c['role']}" for c in result["culprits"]],
        "notes": [note["text"] for note in result["notes"]],
        "tests": result["tests"],
        "judged": result["coverage"]["compared"],
        "not_checkable": result["not_checkable"],
        "largest": largest,
        "roles": roles,
    }


def kind(fqn: str) -> str:
    """The module without its place: `decoder.layers.3.mlp.linear_fc1.weight` is a
    `linear_fc1.weight`, in an expert an `experts.linear_fc1.weight`."""
    parts = [part for part in fqn.split(".") if not part.isdigit()]
    tail = parts[-2:] if parts[-1:] in (["weight"], ["bias"]) else parts[-1:]
    inside = next((p for p in ("shared_experts", "experts", "mtp") if p in parts[:-1]), None)
    if inside and inside not in tail:
        tail = [inside, *tail]
    return ".".join(tail) or "model"


def _judges(isolated: dict[str, Any] | None) -> bool:
    """Not what works on values of its own in isolation, or what the run itself contradicts."""
    return bool(isolated and isolated["replaced"] and isolated["verdict"] != "not_checkable")


def _worst_of_roles(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    worst: dict[str, dict[str, Any]] = {}
    for tensor in result["tensors"]:
        if tensor["explained"]:
            continue
        isolated = tensor["isolated"]
        for leg in tensor["legs"]:
            alone = "isolated" in leg["leg"]
            if not leg["checkable"] or (alone and not _judges(isolated)):
                continue
            # Behind choices of experts that round-off turned, this leg judges nothing.
            nearest = max((float(test["headroom"]) for test in leg["tests"]), default=0.0)
            if not alone and nearest > max(1.0, float(tensor["headroom"])):
                continue
            for test in leg["tests"]:
                exact = test["statistic"] in WORST_CASES
                way = "exact" if exact else "isolated" if alone else "end to end"
                what = re.sub(r"\.\d+", "", tensor["arg"]) if exact else ""
                key = f"{kind(tensor['fqn'])}|{tensor['role']}|{what}|{way}"
                headroom = float(test["headroom"])
                if headroom >= worst.get(key, {"headroom": -1.0})["headroom"]:
                    worst[key] = {
                        "headroom": headroom,
                        "tensor": tensor["fqn"],
                        "role": tensor["role"],
                        "arg": tensor["arg"],
                        "leg": leg["leg"],
                        "statistic": test["statistic"],
                    }
    return worst
