"""Lightning's loops are captured without a changed line, and are the same runs. Lightning is no
requirement of the tests: what they need of it, they ask for."""

from __future__ import annotations

import pytest

from captured_run import index, run

pytest.importorskip("lightning")

SCRIPT = "zoo/loops/lightning_trainer.py"


def test_optimizers_that_step_in_turn_are_run_again_in_place(tmp_path):
    """Manual optimization: what is called is what the module is made of."""
    how = {"script": "python/tests/step_digests.py"}
    plain, _ = run(("loop_cases/lightning_in_turn.py",), **how)
    how |= {"TTRACE_OUT": tmp_path / "trace", "TTRACE_LEGS": "replay,noise:1,isolated.noise:1"}
    captured, _ = run(("loop_cases/lightning_in_turn.py",), **how)
    assert captured == plain
    lines = index(tmp_path / "trace")
    assert [line["data"] for line in lines if line.get("kind") == "replayer"] == [{"name": "torch"}]
    legs = {(line["leg"], line["iteration"]) for line in lines if line["type"] == "seal"}
    wanted = ("real", "replay", "noise.1", "isolated.noise.1")
    assert legs == {(leg, iteration) for leg in wanted for iteration in (0, 1)}
    records = [line for line in lines if line["type"] == "record" and line["leg"] == "real"]
    calls = {(r["fqn"], r["call"]) for r in records if r["role"] == "input" and r["iteration"] == 0}
    assert {("critic", 0), ("critic", 1), ("critic", 2)} <= calls
    assert {("generator", 0), ("generator", 1)} <= calls


@pytest.mark.parametrize("options", [(), ("--manual",)])
def test_a_captured_run_is_the_same_run_and_has_whole_iterations(tmp_path, options):
    arguments = ["--accumulate", "2", *options]
    plain, _ = run(arguments, script=SCRIPT)
    captured, _ = run(arguments, script=SCRIPT, TTRACE_OUT=tmp_path / "trace")
    assert captured == plain
    lines = index(tmp_path / "trace")
    records = [line for line in lines if line["type"] == "record"]
    # Two micro-batches an iteration, in each one call of the step and in it one of the model; where
    # the step is the loop, of the module that it calls.
    root, calls = ("layers", (0,)) if options else ("", (0, 1))
    inputs = {
        (r["iteration"], r["micro_batch"], r["call"])
        for r in records
        if r["fqn"] == root and r["role"] == "input"
    }
    assert inputs == {(i, m, c) for i in (0, 1) for m in (0, 1) for c in calls}
    losses = [(r["iteration"], r["micro_batch"]) for r in records if r["role"] == "loss"]
    assert sorted(losses) == [(i, m) for i in (0, 1) for m in (0, 1)]
    groups = [line for line in lines if line.get("kind") == "optimizer_group"]
    assert [g["data"]["values"]["clip_grad"] for g in groups] == [1.0, 1.0]
    assert lines[-1]["complete"]
