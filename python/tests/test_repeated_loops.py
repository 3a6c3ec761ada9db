"""Iterations of plain loops are run again in the loop's own process, and ten steps later not a bit
is different; what cannot be run again says so and is left alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import with_fault
from captured_run import HOOK, ROOT, index, run
from launch_ranks import launcher

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "zoo/loop_styles"))
from styles import STYLES

DIGESTS = "python/tests/step_digests.py"
LEGS = "replay,noise:1,fp32,isolated.noise:1"
# What is said of a style that cannot be run again.
LEFT = {
    "in-turn-seldom": "not all of the loop's optimizers have stepped",
    "joined": "fewer iterations",
    "smoothed": "the hook Smoothed.wrapped.<locals>.smooth may keep something",
    "bounded": "embedding.weight is changed before the step",
    "clipped-between": "adds to gradients that it has clipped",
}
QUICK = (
    *("accumulated", "in-turn-toggled", "adversarial", "hooks"),
    *("counting", "smoothed", "bounded"),
)
QUICK_ON = (("clipped-between", 1), ("partly-scaled", 1), ("normalised", 2))


# Their own tests are below.
APART = ("late", "halved")


def case(style, ranks):
    quick = style in QUICK or (style, ranks) in QUICK_ON
    marks = () if quick else pytest.mark.matrix
    return pytest.param(style, ranks, id=f"{style}-{ranks}", marks=marks)


def digests(style, ranks, out=None):
    how = {} if out is None else {"TTRACE_OUT": out, "TTRACE_LEGS": LEGS}
    # Capture switches dropout off only where a run is compared with another.
    return run(("loop_styles/styles.py", style), processes=ranks, script=DIGESTS, **how)


def records(lines, leg, key):
    """What a leg's records say, by their place in the iteration."""
    place = ("fqn", "role", "arg", "iteration", "call", "pass", "micro_batch")
    found = [line for line in lines if line["type"] == "record" and line["leg"] == leg]
    return {tuple(line[name] for name in place): line[key] for line in found}


@pytest.mark.parametrize(
    ("style", "ranks"),
    [case(style, ranks) for style in STYLES if style not in APART for ranks in (1, 2)],
)
def test_an_iteration_runs_again_and_nothing_is_changed(style, ranks, tmp_path):
    out = tmp_path / "trace"
    plain, _ = digests(style, ranks)
    captured, log = digests(style, ranks, out)
    assert "ttrace:" not in log
    assert captured == plain
    for rank in range(ranks):
        lines = index(out, rank)
        notes = [line["data"] for line in lines if line.get("kind") == "replayer"]
        if style in LEFT and (style != "joined" or ranks > 1):
            assert [note["name"] for note in notes] == ["none"]
            assert LEFT[style] in notes[0]["reason"]
            continue
        assert notes == [{"name": "torch"}], notes
        said = [line["data"]["text"] for line in lines if line.get("kind") == "notice"]
        hooked = style == "compressed" and ranks > 1
        assert any("communication hook of the loop's own" in text for text in said) == hooked
        seals = {(line["leg"], line["iteration"]) for line in lines if line["type"] == "seal"}
        legs = {"real", "replay", "noise.1", "isolated.noise.1"}
        legs |= {"fp32"} if style == "autocast" or "scaled" in style else set()
        assert seals == {(leg, iteration) for leg in legs for iteration in (0, 1)}
        first, again = records(lines, "real", "scale"), records(lines, "replay", "scale")
        assert again and {place: first[place] for place in again} == again
        first, again = records(lines, "real", "xxh3"), records(lines, "replay", "xxh3")
        left = {place: again[place] for place in again if place[1] == "buffer"}
        assert {place: first[place] for place in left} == left
        # On other ranks of DistributedDataParallel the next iteration finds the first one's.
        assert bool(left) == (rank == 0 or style == "parallel-loss")
        kept = [line["data"]["reason"] for line in lines if line.get("kind") == "not_isolated"]
        assert not [reason for reason in kept if "its forward is run again" in reason]


def test_an_iteration_that_is_not_like_the_first_has_no_reruns(tmp_path):
    plain, _ = digests("late", 1)
    captured, _ = digests("late", 1, tmp_path / "trace")
    assert captured == plain
    lines = index(tmp_path / "trace")
    seals = {(line["leg"], line["iteration"]) for line in lines if line["type"] == "seal"}
    assert {(leg, i) for leg, i in seals if i == 1} == {("real", 1)}
    assert ("replay", 0) in seals
    skipped = [line["data"] for line in lines if line.get("kind") == "leg_skipped"]
    reasons = {note["reason"] for note in skipped if note["iteration"] == 1}
    assert "head.bias is changed before the step of its optimizer" in reasons


def test_what_a_loop_leaves_in_its_gradients_is_compared(tmp_path):
    plain, _ = digests("halved", 1)
    captured, _ = digests("halved", 1, tmp_path / "trace")
    assert captured == plain
    notes = [line["data"] for line in index(tmp_path / "trace") if line.get("kind") == "replayer"]
    assert [note["reason"] for note in notes] == [
        "run again it gives other gradients (head.weight, head.bias)"
    ]


def trained(out, ranks=2, start=None, **fault):
    """(exit code, lines about the run's numbers, everything that was said)"""
    start = start or launcher(ranks)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment |= with_fault.environment(out, HOOK, "replay,noise:1", 8, {"rank": 1, **fault})
    done = subprocess.run(
        [*start, "zoo/with_fault.py", DIGESTS, "loop_styles/styles.py", "accumulated"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    lines = sorted(re.findall(r"^(?:step|state) .*$", done.stdout, re.MULTILINE))
    return done.returncode, lines, done.stdout


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("save gradients", "memory"),
        ("enter the leg", "exception"),
        pytest.param("seal the leg", "full disk", marks=pytest.mark.matrix),
        pytest.param("put back", "memory", marks=pytest.mark.matrix),
        pytest.param("forward", "slow", marks=pytest.mark.matrix),
        ("backward", "memory"),
        pytest.param("forward", "exception", marks=pytest.mark.matrix),
    ],
)
def test_what_fails_in_a_rerun_costs_reruns_only(tmp_path, step, fault):
    """Also on one rank alone: no other waits for it in a collective."""
    plain, _ = digests("accumulated", 2)
    code, lines, log = trained(tmp_path / "trace", step=step, fault=fault)
    assert code == 0, log
    assert lines == plain
    assert fault == "slow" or "fault at" in log


TORCHRUN = [sys.executable, *"-m torch.distributed.run --standalone --nproc-per-node 2".split()]


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("forward", "stuck"),
    ],
)
def test_a_rank_that_is_stuck_in_a_rerun_ends_the_run_with_a_reason(tmp_path, step, fault):
    plain, _ = digests("accumulated", 2)
    code, lines, log = trained(tmp_path / "trace", start=TORCHRUN, step=step, fault=fault)
    assert code != 0
    assert lines == [line for line in plain if line.startswith("step 0 ")]
    said = re.findall(r"^ttrace: rank 1: .*$", log, re.MULTILINE)
    assert len(said) == 1 and "exit code 70" in said[0], log
    assert (0, "real") in {
        (line["iteration"], line["leg"])
        for line in index(tmp_path / "trace", 1)
        if line["type"] == "seal"
    }
