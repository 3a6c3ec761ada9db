"""How the sweep judges what was said of a mutant, and that its plan follows from its seed."""

from __future__ import annotations

import hashlib
import math
import sys

import pytest

from runs import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep.earlier import read_earlier
from mutation_sweep.judge import happened, in_order, judge_mutant, why_missed
from mutation_sweep.plan import (
    DENSE,
    EXPERTS,
    FIRST_SEED_OF_FURTHER_AXES,
    MECHANISMS,
    TOPOLOGIES,
    plan,
)
from mutation_sweep.table import write_table

MODULES = ["embedding", "decoder.layers.0.mlp", "decoder.layers.0", "decoder.layers.1", ""]
SITE = {"phase": "forward", "fqn": "decoder.layers.0.mlp", "kind": "all_reduce", "group": "tp"}


def mutant(family: str = "collective", mechanism: str = "drop", ranks: str = "all", **site) -> dict:
    site = {**SITE, "direction": "forward", **site}
    fields = {"family": family, "mechanism": mechanism, "ranks": ranks}
    fields |= {"bf16": True, "experts": False}
    return {**fields, "site": site}


def culprit(fqn: str, role: str = "output", letter: str = "P") -> dict:
    return {
        "fqn": fqn,
        "role": role,
        "direction": "forward",
        "stage": "communication",
        "headroom": 12.0,
        "ranks": [0],
        "found_by": ["dataflow"],
        "classes": [{"class": letter, "evidence": "as seen"}],
    }


def result(*culprits: dict, tensors: tuple[dict, ...] = ()) -> dict:
    return {
        "verdict": "diverged" if culprits else "within",
        "reason": "",
        "culprits": list(culprits),
        "notes": [],
        "tensors": list(tensors),
    }


def tensor(role: str, fqn: str, verdict: str = "within", **more) -> dict:
    leg = {"leg": "real", "err": 1e-4, "bound": 1e-3, "headroom": 0.1}
    base = {"role": role, "fqn": fqn, "verdict": verdict, "headroom": 0.1, "explained": False}
    return {**base, "reason": "", "legs": [leg], **more}


def test_moments_that_the_sweep_puts_back_are_no_finding() -> None:
    back = {**culprit("decoder.layers.0.mlp.weight", "optim_state", "C"), "found_by": ["states"]}
    assert not judge_mutant(result(back), mutant(), MODULES)["detected"]
    found = judge_mutant(result(back, culprit("decoder.layers.0.mlp")), mutant(), MODULES)
    assert (found["detected"], found["window"]) == (True, 0)


def test_the_window_counts_recorded_modules() -> None:
    for fqn, off in (("decoder.layers.0.mlp", 0), ("decoder.layers.1", 2), ("nowhere", None)):
        assert judge_mutant(result(culprit(fqn)), mutant(), MODULES)["window"] == off
    # A parameter stands for its module, but only itself is exact for a gradient.
    found = judge_mutant(result(culprit("decoder.layers.1.weight")), mutant(), MODULES)
    assert found["window"] == 2
    gradient = mutant("grad_local", "row", fqn="decoder.layers.1.weight", phase="finalize")
    exact = culprit("decoder.layers.1.weight", "grad_local")
    assert judge_mutant(result(exact), gradient, MODULES)["window"] == 0
    # A bucket's reduction is any of its parameters'.
    bucket = mutant(fqn="", phase="finalize")
    for role, off in (("grad_reduced", 0), ("output", None)):
        found = judge_mutant(result(culprit("decoder.layers.1.weight", role)), bucket, MODULES)
        assert found["window"] == off
    # What is sent between stages belongs to the layers on both sides.
    sent = mutant(fqn="", phase="between", kind="isend")
    modules = [*MODULES, "decoder"]
    for fqn, off in (("decoder.layers.1", 0), ("decoder", 0), ("embedding", 2)):
        assert judge_mutant(result(culprit(fqn)), sent, modules)["window"] == off
    # What was logged of it is more than the middle.
    sent["ends"] = ["decoder.layers.1", "decoder.layers.2"]
    found = judge_mutant(result(culprit("decoder.layers.0")), sent, modules)
    assert found["window"] == 1


def test_virtual_stages_and_ranks_with_other_experts_have_one_order() -> None:
    log = [
        {"stage": 1, "chunk": 0, "modules": ["layers.1"]},
        {"stage": 0, "chunk": 1, "modules": ["layers.2"]},
        {"stage": 0, "chunk": 0, "modules": ["router", "experts.0", "experts.1", "mlp"]},
        {"stage": 0, "chunk": 0, "modules": ["router", "experts.2", "experts.3", "mlp"]},
        {"iteration": 1, "stage": 0},
        {"stage": 1, "chunk": 1, "modules": ["layers.3", ""]},
    ]
    experts = [f"experts.{number}" for number in range(4)]
    assert in_order(log) == ["router", *experts, "mlp", *(f"layers.{n}" for n in (1, 2, 3)), ""]


@pytest.mark.parametrize(
    ("letter", "mechanism", "said"),
    [
        ("S", "drop", "right"),
        ("S", "scale", "wrong"),
        ("K", "scale", "right"),
        ("G", "drop", "wrong"),
    ],
)
def test_a_gather_of_parameters_is_part_of_the_update(
    letter: str, mechanism: str, said: str
) -> None:
    site = {"phase": "optimizer", "fqn": "bucket 0", "kind": "all_gather_into_tensor"}
    gather = mutant(mechanism=mechanism, group="dp", **site, direction="")
    for stage, right in (("optimizer", True), ("communication", True), ("compute", False)):
        found = {**culprit("decoder.layers.0.w", "param_updated", letter), "stage": stage}
        entry = judge_mutant(result(found), gather, MODULES)
        assert (entry["window"], entry["stage_right"], entry["class"]) == (0, right, said)
    norm = judge_mutant(result(culprit("", "grad_norm", letter)), gather, MODULES)
    assert norm["window"] is None
    assert (
        judge_mutant(result({**culprit("w"), "classes": []}), gather, MODULES)["class"] == "silent"
    )


def test_what_experts_are_sent_is_mixed_before_it_is_recorded() -> None:
    silent = result({**culprit("embedding"), "classes": []})
    for kind in ("all_to_all_single", "reduce_scatter_tensor"):
        sent = mutant("collective", "scale", kind=kind)
        assert judge_mutant(silent, sent, MODULES)["class"] == "silent"
        sent["experts"] = True
        assert judge_mutant(silent, sent, MODULES)["class"] == "none promised"
        sent["site"]["fqn"] = "embedding"
        assert judge_mutant(silent, sent, MODULES)["class"] == "silent"
    sent = mutant(kind="all_to_all_single")
    sent["experts"] = True
    expert = "decoder.layers.0.mlp.experts.local_experts.2"
    modules = [expert, "decoder.layers.0.mlp.router", *MODULES]
    for role, off in (("input", 0), ("grad_output", 0), ("output", 3)):
        assert judge_mutant(result(culprit(expert, role)), sent, modules)["window"] == off
    assert judge_mutant(result(culprit("embedding", "input")), sent, modules)["window"] == 1
    # The layer's own output is no code that brings rows.
    own = {**mutant("output", "row", kind="output"), "experts": True}
    assert judge_mutant(result(culprit(expert, "input")), own, modules)["window"] == 3
    route = mutant("route", "neighbour", kind="route")
    assert judge_mutant(silent, route, MODULES)["class"] == "none promised"
    assert (
        judge_mutant(result(culprit("embedding", letter="X")), route, MODULES)["class"] == "right"
    )


@pytest.mark.parametrize(
    ("letter", "change", "said"),
    [
        ("P", {}, "right"),
        ("S", {}, "wrong"),
        ("S", {"mechanism": "delay"}, "right"),
        ("R", {"mechanism": "delay"}, "wrong"),
        ("R", {"mechanism": "delay", "ranks": "one"}, "right"),
        ("P", {"mechanism": "double", "ranks": "one"}, "wrong"),
        ("R", {"mechanism": "double", "ranks": "one"}, "right"),
        ("S", {"mechanism": "double", "ranks": "one"}, "wrong"),
        ("S", {"mechanism": "double", "ranks": "one", "phase": "finalize"}, "right"),
        ("P", {"family": "output", "mechanism": "row", "kind": "output"}, "wrong"),
        ("K", {"family": "output", "mechanism": "all", "kind": "output"}, "right"),
        ("S", {"family": "update", "mechanism": "skip", "kind": "update"}, "right"),
        ("R", {"mechanism": "double", "group": "across stages"}, "right"),
        ("G", {"phase": "optimizer", "kind": "all_reduce"}, "right"),
        ("K", {"family": "grad_local", "mechanism": "gain"}, "right"),
        ("R", {"family": "grad_local", "mechanism": "gain"}, "wrong"),
        ("R", {"family": "grad_local", "mechanism": "gain", "ranks": "one"}, "right"),
        ("X", {"family": "output", "mechanism": "piece", "ranks": "one"}, "right"),
        ("W", {"family": "output", "mechanism": "piece", "ranks": "one"}, "wrong"),
        ("I", {"family": "output", "mechanism": "unsteady"}, "right"),
        ("I", {"family": "output", "mechanism": "once"}, "right"),
        ("K", {"family": "output", "mechanism": "once"}, "wrong"),
        ("U", {"family": "mask", "mechanism": "copies"}, "right"),
        ("R", {"family": "mask", "mechanism": "copies"}, "wrong"),
    ],
)
def test_classes_are_those_of_the_mechanism(letter: str, change: dict, said: str) -> None:
    found = judge_mutant(result(culprit("embedding", letter=letter)), mutant(**change), MODULES)
    assert found["class"] == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "silent"),
        ({"phase": "optimizer"}, "silent"),
        ({"family": "output", "mechanism": "row", "kind": "output"}, "none promised"),
        # Inside the loss a sum of exponentials, inside attention all keys and values: mixed with
        # others before anything is recorded.
        ({"mechanism": "scale", "fqn": ""}, "none promised"),
        ({"fqn": "a.core_attention", "kind": "all_gather_into_tensor"}, "none promised"),
        ({"kind": "all_gather_into_tensor"}, "silent"),
        ({"kind": "all_gather_into_tensor", "phase": "backward"}, "none promised"),
        ({"mechanism": "double", "ranks": "one"}, "none promised"),
        # Its own precision rounds a small factor away, that of a gradient in fp32 does not.
        ({"family": "output", "mechanism": "gain"}, "none promised"),
        ({"family": "grad_local", "mechanism": "gain"}, "silent"),
        ({"family": "output", "mechanism": "piece", "ranks": "one"}, "none promised"),
        ({"family": "output", "mechanism": "unsteady"}, "silent"),
        ({"family": "mask", "mechanism": "data"}, "silent"),
    ],
)
def test_silence_is_right_where_nothing_can_be_said(change: dict, said: str) -> None:
    silent = {**culprit("embedding"), "classes": []}
    assert judge_mutant(result(silent), mutant(**change), MODULES)["class"] == said


def test_a_setting_is_that_of_its_groups_parameters() -> None:
    setting = mutant("setting", "lr", fqn="group 1", phase="optimizer", direction="")
    setting["parameters"] = ["decoder.layers.0.mlp.bias"]
    for fqn, off in (("decoder.layers.0.mlp.bias", 0), ("decoder.layers.0.mlp.weight", None)):
        found = {**culprit(fqn, "param_updated", "H"), "stage": "optimizer"}
        entry = judge_mutant(result(found), setting, MODULES)
        assert (entry["window"], entry["stage_right"], entry["class"]) == (off, True, "right")
    assert "show nothing" in judge_mutant(result(), setting, MODULES)["why_missed"]


def test_a_mask_of_two_layers_is_either_ones() -> None:
    mask = mutant("mask", "layers", fqn="decoder.layers.0.attention_dropout")
    mask["partner"] = {**SITE, "fqn": "embedding.embedding_dropout"}
    for fqn, off in (
        ("decoder.layers.0.attention_dropout", 0),
        ("embedding.embedding_dropout", 0),
        ("decoder.layers.1.attention_dropout", None),
    ):
        found = judge_mutant(result(culprit(fqn, letter="U")), mask, MODULES)
        assert found["window"] == off


@pytest.mark.parametrize(
    ("stage", "change", "right"),
    [
        ("communication", {}, True),
        ("compute", {}, True),
        ("optimizer", {}, False),
        ("compute", {"phase": "finalize", "fqn": ""}, False),
        ("communication", {"family": "output", "mechanism": "row"}, False),
    ],
)
def test_inside_a_module_communication_may_look_like_computation(
    stage: str, change: dict, right: bool
) -> None:
    found = {**culprit("embedding"), "stage": stage}
    assert judge_mutant(result(found), mutant(**change), MODULES)["stage_right"] == right


def test_a_miss_has_a_reason() -> None:
    fqn = SITE["fqn"]
    for tensors, said in (
        ((), "not observed"),
        ((tensor("output", fqn),), "within the bound"),
        ((tensor("output", fqn, "not_checkable", reason="no noise"),), "not judged: no noise"),
        ((tensor("output", fqn, explained=True, reason="grafted"),), "not judged: grafted"),
    ):
        assert said in why_missed(result(tensors=tensors), mutant())
    update = mutant("update", "skip", fqn="w", phase="optimizer")
    alone = tensor("param_updated", "w", explained=True)
    assert "there is no other copy" in why_missed(result(tensors=(alone,)), update)
    copied = {**alone, "replicas": {"copies": 2}}
    assert "all copies skip" in why_missed(result(tensors=(copied,)), update)


def test_what_happened_is_the_sum_over_ranks() -> None:
    line = {
        **mutant(),
        "iteration": 1,
        "run": 0,
        "rank": 0,
        "size": 0.1,
        "seed": 1,
        "micro_batch": None,
        "stage": 0,
        "holds": True,
        "error": 3.0,
        "truth": 50.0,
    }
    other = {**line, "rank": 1, "holds": False, "error": 0.0}
    replay = {**line, "run": 1, "error": 0.0}
    found = happened([line, other, replay], 1)
    assert found is not None
    assert found["relative"] == pytest.approx(math.sqrt(0.03))
    assert (found["holders"], found["reruns"], found["quiet_reruns"]) == ([0], 1, 1)
    assert happened([line], 2) is None
    assert happened([{**line, "error": 0.0}], 1) is None
    # Ranks of a distributed optimizer step other parameters.
    of = [{"rank": 0, "parameters": ["b"]}, {"rank": 1, "parameters": ["a", "b"]}]
    found = happened([{**line, **more} for more in of], 1)
    assert found is not None
    assert found["parameters"] == ["a", "b"]
    found = happened([{**line, **of[0]}, {**other, **of[1]}], 1)
    assert found is not None
    assert found["parameters"] == ["b"]


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(1, 7, 9) == plan(1, 7, 9)
    assert plan(1, 7, 9) != plan(2, 7, 9)
    # Candidates of one reference share its model and nothing else.
    assert plan(1, 6, 9).model == plan(1, 7, 9).model
    assert plan(1, 6, 9).mutants != plan(1, 7, 9).mutants
    launches = [plan(1, number, 9) for number in range(200)]
    assert {launch.topology for launch in launches} == set(TOPOLOGIES)
    assert {launch.bf16 for launch in launches} == {True, False}
    for launch in launches:
        assert not (launch.dropout and "--cp" in launch.flags)
        for planned in launch.mutants:
            assert launch.dropout or planned.family != "mask"
            if planned.mechanism == "piece":
                assert launch.processes > (2 if "--pp" in launch.flags else 1)
            if planned.mechanism == "gain":
                assert 1e-3 <= planned.size <= 1e-2
    drawn = {(m.family, m.mechanism) for launch in launches for m in launch.mutants}
    dense = MECHANISMS.keys() - {"route"}
    assert drawn == {(family, m) for family in dense for m in MECHANISMS[family]}
    for number in range(20):
        assert [m.iteration for m in plan(1, number, 9).mutants] == [1, 3, 5, 7]


def test_plans_of_published_seeds_are_what_they_were() -> None:
    launches = [
        plan(seed, number, 33)
        for seed in range(1, FIRST_SEED_OF_FURTHER_AXES)
        for number in range(40)
    ]
    assert hashlib.sha256(repr(launches).encode()).hexdigest()[:16] == "1f830402e1d66ba2"


def test_later_seeds_have_virtual_stages_experts_and_sharded_optimizers() -> None:
    seed = FIRST_SEED_OF_FURTHER_AXES
    launches = [plan(seed, number, 9) for number in range(300)]
    assert {launch.topology for launch in launches} == DENSE.keys() | EXPERTS.keys()
    for launch in launches:
        assert ("--experts" in launch.model) == (launch.topology in EXPERTS)
        routes = any(mutant.family == "route" for mutant in launch.mutants)
        assert "--experts" in launch.model or not routes
        # Megatron wants micro-batches for each stage, and rows for each data-parallel rank.
        size = {
            name: int(launch.flags[launch.flags.index(name) + 1])
            for name in ("--tp", "--pp")
            if name in launch.flags
        }
        ranks = launch.processes // math.prod(size.values())
        rows = dict(zip(launch.model, launch.model[1:], strict=False))
        micro_batches = int(rows["--global-batch"]) / (ranks * int(rows["--micro-batch"]))
        assert micro_batches % size.get("--pp", 1) == 0
        if "--vpp" in launch.flags:
            assert rows["--layers"] == "4"
    routed = {m.mechanism for launch in launches for m in launch.mutants if m.family == "route"}
    assert routed == set(MECHANISMS["route"])
    for bf16 in (True, False):
        mine = {launch.topology for launch in launches if launch.bf16 == bf16}
        assert {"vpp2", "ep2", "dp2_sharded"} <= mine


def test_the_table_counts_alarms_misses_and_sizes(tmp_path) -> None:
    launch = {"seed": 1, "launch": 3, "topology": "tp2", "recompute": False, "bf16": True}
    happened_there = {**mutant(), "relative": 2e-3}
    clean = {"kind": "clean", "verdict": "within", "headroom": 0.5, "culprits": []}
    alarm = {**clean, "verdict": "diverged", "culprits": [culprit("embedding")]}
    missed = {
        **clean,
        "kind": "mutant",
        "mutant": happened_there,
        "detected": False,
        "why_missed": "within the bound: so",
    }
    found = judge_mutant(result(culprit("decoder.layers.0.mlp")), happened_there, MODULES)
    rows = [clean, alarm, missed, {**found, "kind": "mutant", "mutant": happened_there}]
    experiments = [{"iteration": i, **row} for i, row in enumerate(rows)]
    path = tmp_path / "sweep.md"
    write_table(path, [{**launch, "experiments": experiments}, {**launch, "failed": "x"}], "me")
    text = path.read_text()
    assert "1 launches, 2 mutants that changed a number, 2 clean" in text
    assert "False alarms: 1." in text
    assert "| forward collective | bf16 |  |  |  |  | 1/2 |  |  |  |" in text
    assert "- 1:3/1 (tp2 bf16): embedding output" in text
    assert "1:3/2 (tp2 bf16): collective drop (all) of all_reduce over tp" in text
    assert "Launches that failed: 3." in text
    # What this table has is 1 of 2, and the earlier sweep had 1 of 1.
    assert "1 cells are filled in both tables" in text
    assert "- forward collective, bf16, 1e-3: 1/2, before 1/1" in text


def test_an_earlier_table_is_read_as_it_was_written() -> None:
    names, cells = read_earlier(
        "| role | precision | < 1e-6 | 1e-6 |\n|---|---|---|---|\n| output | fp32 |  | 3/4 |\n"
    )
    assert names == ["< 1e-6", "1e-6"]
    assert {cell: (count.found, count.all) for cell, count in cells.items()} == {
        ("output", "fp32", 1): (3, 4)
    }
