"""Results of any size as `ttrace check` writes them (docs/result_schema.md), without runs.

Real ones are small; a page has to be right of a large model, of hostile names and of fields that
few runs have.
"""

from __future__ import annotations

import json
from pathlib import Path

LEGS = ("real", "fp32", "isolated", "fp32.isolated")
LEAVES = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1")
HOSTILE = (
    "a</script><script>window.hit=1</script>",
    "b\"'><img src=x onerror=window.hit=1>",
    "c\u202egnp.exe\u2066",
    "d\x00\x1b[31m\n\r\t",
    "e" * 100_000,
    "f&amp;<!--]]>`${window.hit=1}`",
    "g.\u00fc\u4e2d.\U0001f525",
    "h/%2F#tensor=x&find=y",
    "__proto__.constructor",
    "",
)


def leg(name: str, err: float, bound: float) -> dict:
    return {
        "leg": name,
        "err": err,
        "bound": bound,
        "headroom": err / bound,
        "checkable": True,
        "provenance": f"noise {bound / 2:.1e} x 2 (3 noise legs)",
        "statistic": "norm",
        "tests": [],
        "noise": bound / 3,
        "ranks": [],
        "elements": 1000,
        "mismatched": 990,
        "max_abs_err": err,
        "max_abs_ref": 1.0,
        "projection": 1.0,
        "residual": 0.0,
    }


def identity(fqn: str, role: str, iteration: int, arg: str = "") -> dict:
    passes = {"param": "forward", "input": "forward", "output": "forward"}
    update = role in ("param_updated", "optim_state")
    return {
        "fqn": fqn,
        "role": role,
        "iteration": iteration,
        "call": 0,
        "arg": arg,
        "pass": passes.get(role, "optimizer" if update else "backward"),
    }


def tensor(
    fqn: str,
    role: str,
    iteration: int,
    order: int,
    *,
    headroom: float = 0.3,
    arg: str = "",
    legs: tuple[str, ...] = LEGS,
    isolated: float = 0.2,
) -> dict:
    out = headroom > 1
    return {
        **identity(fqn, role, iteration, arg),
        "verdict": "diverged" if out else "suspect" if headroom >= 0.5 else "within",
        "headroom": headroom,
        "leg": "real",
        "legs": [
            leg(name, 1e-3 * headroom * (1 + order % 7), 1e-3 * (1 + order % 7)) for name in legs
        ],
        "isolated": {
            "verdict": "diverged" if isolated > 1 else "within",
            "headroom": isolated,
            "leg": "isolated",
            "replaced": True,
            "replicas_differ": False,
            "ranks": [],
            "reason": "",
        },
        "reason": "",
        "explained": False,
        "ranks": [0, 1] if out else [],
        "order": order,
        "nonfinite": False,
        "replicas_differ": False,
    }


def culprit(of: dict, **fields: object) -> dict:
    return {
        "fqn": of["fqn"],
        "name_in_candidate": "",
        "source": {"file": "model.py", "line": 7, "text": "model.py:7, class Block"},
        "role": of["role"],
        "direction": "backward",
        "stage": "communication",
        "ranks": [0, 1],
        "iteration": of["iteration"],
        "headroom": of["headroom"],
        "affected": {"count": 2, "of": 9, "examples": [of["fqn"]]},
        "classes": [
            {"class": "P", "name": "missing partial sum", "evidence": "a sum over tp", "value": 1.0}
        ],
        "tensor": {key: of[key] for key in ("fqn", "role", "iteration", "call", "arg", "pass")},
        "where": "the local gradients are within bounds, the reduced one is not",
        "found_by": ["dataflow", "isolation"],
        "disagreement": "",
        "contradictions": [],
        "hints": ["0 reductions over tp seen"],
        **fields,
    }


def grid(world: int, tp: int) -> dict:
    return {
        "name": "mesh",
        "axes": [{"name": "dp", "size": world // tp}, {"name": "tp", "size": tp}],
        "coordinates": [[rank // tp, rank % tp] for rank in range(world)],
    }


def result(verdict: str, tensors: list[dict], *, world: int = 4, **fields: object) -> dict:
    exit_code = {"within": 0, "bitwise_equal": 0, "diverged": 1}.get(verdict, 2)
    side = {
        "folder": "out/candidate",
        "mesh": f"dp={world // 2} tp=2",
        "world_size": world,
        "legs": ["isolated", "real"],
        "grids": [grid(world, 2)],
    }
    return {
        "schema": 2,
        "verdict": verdict,
        "exit_code": exit_code,
        "reason": "every checkable tensor is within its bound",
        "coverage": {
            "compared": len(tensors),
            "reference_only": 0,
            "candidate_only": 0,
            "explained": {},
        },
        "sides": {
            "reference": {
                **side,
                "folder": "out/reference",
                "mesh": "1 process",
                "world_size": 1,
                "grids": [],
            },
            "candidate": side,
        },
        "legs": list(LEGS),
        "iterations": sorted({t["iteration"] for t in tensors}),
        "clean": [
            {
                "kind": "forward",
                "clean": 9,
                "of": 9,
                "not_checkable": 0,
                "not_checkable_but_isolated": 0,
            }
        ],
        "suspects": 0,
        "not_checkable": 0,
        "downstream": 0,
        "isolation": None,
        "routing": None,
        "seconds": 1.5,
        "bytes_compared": 10**9,
        "bitwise": False,
        "risk": 0.001,
        "tests": 4000,
        "notes": [],
        "next_steps": ["ttrace inspect out/candidate"],
        "culprits": [],
        "contested": [],
        "tensors": tensors,
        **fields,
    }


def model(layers: int, iterations: int = 2, legs: tuple[str, ...] = LEGS) -> list[dict]:
    """The tensors of a decoder in the order of execution; all are clean."""
    out: list[dict] = []
    for iteration in range(iterations):
        order = 0

        def add(fqn: str, role: str, headroom: float, it: int = iteration) -> None:
            nonlocal order
            out.append(tensor(fqn, role, it, order, headroom=headroom, legs=legs))
            order += 1

        modules = [f"decoder.layers.{k}.{leaf}" for k in range(layers) for leaf in LEAVES]
        for name in modules:
            add(f"{name}.weight", "param", 0.01)
        for name in modules:
            add(name, "input", 0.2)
            add(name, "output", 0.3)
        for name in reversed(modules):
            add(name, "grad_output", 0.3)
            add(name, "grad_input", 0.35)
        for name in reversed(modules):
            add(f"{name}.weight", "grad_local", 0.3)
        for name in reversed(modules):
            add(f"{name}.weight", "grad_reduced", 0.4)
        for name in modules:
            add(f"{name}.weight", "param_updated", 0.2)
    return out


def diverged(layers: int = 4, iterations: int = 2) -> dict:
    """One reduced gradient of the middle layer is the fault, and states follow from it."""
    tensors = model(layers, iterations)
    fault = f"decoder.layers.{layers // 2}.mlp.linear_fc1.weight"
    for one in tensors:
        if one["fqn"] != fault or one["role"] not in ("grad_reduced", "param_updated"):
            continue
        first = one["role"] == "grad_reduced"
        one.update(verdict="diverged", headroom=30.0, ranks=[1, 3], shape=[8, 16], dtype="bf16")
        one["cause"] = {"culprit": 0, "as": "downstream"}
        if first:
            one["isolated"].update(verdict="diverged", headroom=50.0)
            one["cause"]["as"] = "first" if one["iteration"] == 0 else "same"
            one["legs"] = [leg(name, 0.5, 0.02) for name in LEGS]
            one["replicas"] = {
                "groups": 1,
                "copies": 1,
                "differing": 1,
                "worst_rel_err": 1.5,
                "ranks": [1, 3],
                "mesh_dims": ["tp"],
            }
    first = next(t for t in tensors if t["role"] == "grad_reduced" and t["verdict"] == "diverged")
    pattern = {
        "leg": "real",
        "dims": [0, 1],
        "rows": [0, 4, 8],
        "columns": [0, 8, 16],
        "errors": [0.0, 1e-4, 1e-2, 0.7],
        "sampled": False,
        "pieces": [
            {
                "ranks": [0, 2],
                "micro_batch": -1,
                "box": "[0:4, 0:16]",
                "err": 1e-4,
                "mismatched": 5,
                "elements": 64,
            },
            {
                "ranks": [1, 3],
                "micro_batch": -1,
                "box": "[4:8, 0:16]",
                "err": 0.7,
                "mismatched": 64,
                "elements": 64,
            },
        ],
    }
    return result(
        "diverged",
        tensors,
        reason="first at the middle",
        downstream=2 * iterations - 1,
        culprits=[culprit(first, ranks=[1, 3], pattern=pattern)],
        modules=[
            {
                "fqn": fault.removesuffix(".weight"),
                "class": "ColumnParallelLinear",
                "file": "megatron/core/layers.py",
                "line": 12,
            }
        ],
    )


def stated() -> dict:
    """What runs say of themselves has no tensor, and copies of a norm within its bound differ."""
    tensors = model(2)
    norm = tensor("grad_norm", "grad_norm", 0, 1000, headroom=0.04, legs=("real",))
    norm.update(
        verdict="diverged",
        isolated=None,
        replicas_differ=True,
        replicas={
            "groups": 1,
            "copies": 3,
            "differing": 2,
            "worst_rel_err": 1e-7,
            "ranks": [1, 2],
            "mesh_dims": ["dp"],
        },
    )
    tensors.append(norm)
    nowhere = identity("decoder.head.weight", "param_updated", 0)
    mask = identity("decoder.layers.1.dropout", "output", 0, "0")
    return result(
        "diverged",
        tensors,
        culprits=[
            culprit(
                {**nowhere, "headroom": float("inf")}, classes=letter("H"), headroom="Infinity"
            ),
            culprit({**mask, "headroom": float("inf")}, classes=letter("U"), headroom="Infinity"),
        ],
    )


def letter(name: str) -> list[dict]:
    return [{"class": name, "name": name, "evidence": f"evidence of {name}", "value": None}]


def clean(layers: int = 4) -> dict:
    return result("within", model(layers))


def inconclusive() -> dict:
    tensors = model(2)
    for k, one in enumerate(t for t in tensors if t["role"] == "grad_local"):
        one.update(
            verdict="not_checkable",
            headroom=0.0,
            leg=None,
            reason=f"its bound of {k + 1}.0e+00 is too wide to mean anything",
        )
    return result(
        "inconclusive",
        tensors,
        reason="no grad_local of Linear can be judged",
        notes=[{"kind": "not_covered", "text": "a fused kernel was not observed"}],
        next_steps=["another try: ttrace diff -o NEW --candidate CMD"],
    )


def hostile() -> dict:
    tensors = [
        tensor(name, "output", 0, k, headroom=30.0 if k < 3 else 0.3, arg=name[:50])
        for k, name in enumerate(HOSTILE)
    ]
    for one, name in zip(tensors, HOSTILE, strict=True):
        one.update(reason=name, dtype=name[:20], shape=[2, 3])
    bad = culprit(
        tensors[0],
        name_in_candidate=HOSTILE[1],
        where=HOSTILE[0],
        hints=list(HOSTILE[:4]),
        disagreement=HOSTILE[2],
        source={"file": HOSTILE[0], "line": 3, "text": HOSTILE[1]},
        classes=[{"class": HOSTILE[0], "name": HOSTILE[1], "evidence": HOSTILE[2], "value": None}],
    )
    made = result(
        "diverged",
        tensors,
        culprits=[bad, culprit(tensors[1])],
        contested=[culprit(tensors[2])],
        reason=HOSTILE[0],
        next_steps=[f"ttrace inspect {HOSTILE[0]}", HOSTILE[1]],
        notes=[{"kind": HOSTILE[0], "text": name} for name in HOSTILE],
        modules=[{"fqn": HOSTILE[0], "class": HOSTILE[1], "file": HOSTILE[2], "line": 1}],
    )
    made["sides"]["candidate"].update(folder=HOSTILE[0], mesh=HOSTILE[1])
    made["coverage"]["explained"] = {HOSTILE[0]: 3}
    return made


def large() -> dict:
    """Of more than 10,000 tensors."""
    return diverged(layers=210, iterations=2)


def nothing() -> dict:
    return result("inconclusive", [], reason="nothing was compared")


def write(made: dict, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    path.write_text(json.dumps(made))
    return path
