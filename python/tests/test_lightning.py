"""Lightning's loops are captured without a changed line, and are the same runs. Lightning is no
requirement of the tests: what they need of it, they ask for."""

from __future__ import annotations

import pytest

from captured_run import index, run

pytest.importorskip("lightning")

SCRIPT = "zoo/loops/lightning_trainer.py"


@pytest.mark.parametrize("options", [(), ("--manual",)])
def test_a_captured_run_is_the_same_run_and_has_whole_iterations(tmp_path, options):
    arguments = ["--accumulate", "2", *options]
    plain, _ = run(arguments, script=SCRIPT)
    captured, _ = run(arguments, script=SCRIPT, TTRACE_OUT=tmp_path / "trace")
    assert captured == plain
    lines = index(tmp_path / "trace")
    records = [line for line in lines if line["type"] == "record"]
    # Two micro-batches an iteration, in each one call of the step and in it one of the model.
    inputs = {
        (r["iteration"], r["micro_batch"], r["call"])
        for r in records
        if r["fqn"] == "" and r["role"] == "input"
    }
    assert inputs == {(i, m, c) for i in (0, 1) for m in (0, 1) for c in (0, 1)}
    losses = [(r["iteration"], r["micro_batch"]) for r in records if r["role"] == "loss"]
    assert sorted(losses) == [(i, m) for i in (0, 1) for m in (0, 1)]
    groups = [line for line in lines if line.get("kind") == "optimizer_group"]
    assert [g["data"]["values"]["clip_grad"] for g in groups] == [1.0, 1.0]
    assert lines[-1]["complete"]
