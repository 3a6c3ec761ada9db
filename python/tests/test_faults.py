"""Real runs in which something fails in the middle of a rerun, on one rank of two. Those that end
of it are torchrun's.

All combinations are in docs/evidence/faults.md, made by scripts/fault_table.py.
"""

import os
import re
import subprocess
import sys

import pytest

import with_fault
from captured_run import HOOK, ROOT, index
from launch_ranks import launcher

pytest.importorskip("megatron.core")

# A noise leg writes values of what is smaller.
LARGER = "--hidden 256 --heads 4 --seq 64".split()
ARGUMENTS = "--tp 2 --steps 3 --layers 1 --hidden 32 --ffn 64 --print-state".split()
LEG_TIMEOUT = 8


LAUNCHER = launcher(2)
TORCHRUN = [sys.executable, *"-m torch.distributed.run --standalone --nproc-per-node 2".split()]


def train(out=None, size=(), start=LAUNCHER, **fault):
    """(exit code of what starts the ranks, lines about the run's numbers, everything it said)"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if out is not None:
        fault = {"rank": 1, **fault}
        environment |= with_fault.environment(out, HOOK, "replay,noise:1", LEG_TIMEOUT, fault)
    done = subprocess.run(
        [*start, "zoo/with_fault.py", "zoo/train_gpt.py", *ARGUMENTS, *size],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    lines = sorted(re.findall(r"^(?:step|state) .*$", done.stdout, re.MULTILINE))
    return done.returncode, lines, done.stdout


@pytest.fixture(scope="module")
def plain():
    code, lines, log = train()
    assert code == 0 and len(lines) == 5, log
    return lines


def notes(out, rank, kind):
    return [e["data"] for e in index(out, rank) if e.get("kind") == kind]


def sealed(out, rank):
    return {(e["iteration"], e["leg"]) for e in index(out, rank) if e["type"] == "seal"}


def measured(out, rank, iteration):
    """Records of the noise leg of which numbers were written, not values."""
    lines = [e for e in index(out, rank) if e.get("leg") == "noise.1" and "measured_against" in e]
    return sum(line["iteration"] == iteration for line in lines)


@pytest.mark.parametrize(
    ("step", "rank", "words"),
    [
        ("tell scales", 1, "rank 1 did not say how large its parts are"),
        ("add up scales", 0, "rank 0 has not added up"),
    ],
)
def test_what_ranks_do_not_tell_each_other_costs_disk_only(tmp_path, step, rank, words):
    out = tmp_path / "trace"
    _, plain, _ = train(size=LARGER)
    code, lines, log = train(out, LARGER, step=step, rank=rank, fault="exception")
    assert code == 0 and lines == plain and len(lines) == 5, log
    for rank in range(2):
        said = [note["text"] for note in notes(out, rank, "notice")]
        assert any("several ranks" in text and words in text for text in said), said
        assert (1, "noise.1") in sealed(out, rank)
        # What one rank holds whole it measures all the same.
        assert measured(out, rank, 0) > measured(out, rank, 1) > 0


@pytest.mark.parametrize(
    ("step", "fault", "words"),
    [
        ("start of capture", "exception", "RuntimeError: injected"),
        pytest.param(
            "save gradients",
            "memory",
            "MemoryError: out of memory, injected",
            marks=pytest.mark.matrix,
        ),
        ("put back", "memory", None),
    ],
)
def test_the_run_goes_on_with_its_own_numbers(tmp_path, plain, step, fault, words):
    out = tmp_path / "trace"
    code, lines, log = train(out, step=step, fault=fault)
    assert code == 0, log
    assert lines == plain
    if words is not None:
        # Every rank that has a trace says what was missing on the other.
        skipped = notes(out, 0, "leg_skipped")
        assert {note["leg"] for note in skipped} == {"replay", "noise.1"}
        assert all("rank 1" in n["reason"] and words in n["reason"] for n in skipped)
        assert not any(note["expected"] for note in skipped)
    assert sealed(out, 0) >= {(0, "real"), (1, "real")}


@pytest.mark.parametrize(
    ("step", "fault", "words"),
    [
        ("forward", "exception", "leg noise.1 of iteration 1 failed on rank 1: RuntimeError: inj"),
        pytest.param(
            "put back",
            "exception",
            "rank 1 could not put back gradient buffer 0",
            marks=pytest.mark.matrix,
        ),
        ("leave the leg", "stuck", f"leg noise.1 of iteration 1 is not over after {LEG_TIMEOUT} s"),
        pytest.param(
            "vote after the leg",
            "stuck",
            "at the vote 'noise.1 ends' of iteration 1",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_the_run_ends_on_all_ranks_with_one_reason(tmp_path, plain, step, fault, words):
    out = tmp_path / "trace"
    code, lines, log = train(out, start=TORCHRUN, step=step, fault=fault)
    assert code != 0
    # Not one step was made with a rerun's gradients.
    assert lines == [line for line in plain if line.startswith("step 0")]
    # The launcher terminates whoever has not left when it sees the first that has.
    assert re.search(r"Root Cause .*\n(?:.*\n){1,4} +exitcode +: 70 ", log), log
    for rank in range(2):
        said = re.findall(rf"^ttrace: rank {rank}: .*$", log, re.MULTILINE)
        assert len(said) == 1 and words in said[0] and "exit code 70" in said[0], log
        # What the run did by itself can be read, and why there is no more.
        assert (0, "real") in sealed(out, rank)
        assert notes(out, rank, "passes_complete")[-1] == {"iteration": 1}
        end = index(out, rank)[-1]
        assert end["type"] == "end" and not end["complete"] and words in end["reason"]
