"""What a user gets in the situations between clean and buggy: other data, no reference, a killed
run. Real runs of the zoo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import perfetto_reader
from runs import ROOT, TTRACE, Outcome, diff, launch, record_reference, ttrace

SCRIPT = "train_gpt.py"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verdicts") / "reference"
    outcome = record_reference(folder, launch(1, SCRIPT, "--steps", "2"), "0:1")
    assert outcome.code == 0, outcome.explain()
    return folder


def test_other_data_without_grafting_is_the_first_finding(reference: Path, tmp_path: Path) -> None:
    candidate = launch(1, SCRIPT, "--steps", "2", "--seed", "4321")
    outcome = diff(
        tmp_path / "report", reference, candidate, "--graft", "weights", "--iterations", "0:1"
    )
    assert outcome.code == 1, outcome.explain()
    assert outcome.first["stage"] == "input", outcome.explain()
    assert outcome.letters == ["Z"], outcome.explain()
    assert re.search(r"rows [0-9, .]+ of the global batch", outcome.first["classes"][0]["evidence"])


def test_other_data_and_weights_are_grafted_away_and_noted(reference: Path, tmp_path: Path) -> None:
    candidate = launch(1, SCRIPT, "--steps", "2", "--seed", "4321")
    outcome = diff(tmp_path / "report", reference, candidate, "--iterations", "0:1")
    assert outcome.code == 0, outcome.explain()
    notes = " ".join(note["text"] for note in outcome.result["notes"])
    assert "its own weights differed" in notes, notes
    assert "its own data differed" in notes, notes


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run with a bug, checked without a reference, and its timeline `t.pftrace`."""
    folder = tmp_path_factory.mktemp("alone")
    trace, report = folder / "trace", folder / "report"
    bug = ("--tp", "2", "--sp", "--bug", "T11")
    command = launch(2, SCRIPT, "--steps", "2", *bug)
    recorded = ttrace("record", "-o", trace, "--", "/bin/sh", "-c", f"exec {command}")
    assert recorded.code == 0, recorded.explain()
    timeline = ("--perfetto", report / "t.pftrace")
    return ttrace("check", trace, "-o", report, *timeline, folder=report)


def test_a_run_alone_shows_copies_that_differ(alone: Outcome) -> None:
    outcome = alone
    assert outcome.code == 1, outcome.explain()
    assert outcome.letters == ["R"], outcome.explain()
    assert re.fullmatch(r".*layernorm\..*|.*bias", outcome.first["fqn"]), outcome.explain()


def test_the_timeline_of_real_ranks_shows_modules_in_passes_and_collectives_as_flows(
    alone: Outcome,
) -> None:
    assert "--perfetto" not in alone.text, alone.explain()
    reading = perfetto_reader.read(alone.folder / "t.pftrace")
    assert len(reading.flows) > 10
    for flow in reading.flows.values():
        assert {one.track.split()[1] for one in flow} == {"0", "1"}
        assert len({one.name for one in flow}) == 1
    # Both read one clock, and nobody leaves a collective before all have come: calls of one that
    # lie further apart than a whole iteration were laid side by side wrongly.
    whole = max(one.end - one.begin for one in reading.slices if one.category == "iteration")
    assert all(abs(a.begin - b.begin) < whole for a, b in reading.flows.values())
    for rank in "01":
        own = [s for s in reading.slices if s.track.startswith(f"rank {rank} ")]
        assert {one.track.split("/")[1] for one in own} == {"real"}, "modules nest in one lane"
        passes = [s.name.removesuffix(" (out of bounds)") for s in own if s.depth == 1]
        words = ("forward of micro-batch 0", "backward of micro-batch 0", "optimizer's step")
        assert [one for one in passes if one in words] == [*words, *words]
        module = "decoder.layers.0.mlp.linear_fc2"
        calls = [
            one
            for one in reading.instants
            if one.category == "collective"
            and one.track.startswith(f"rank {rank} ")
            and one.facts.get("module") == module
            and one.facts.get("phase") == "forward"
        ]
        lasted = [(s.begin, s.end) for s in own if (s.name, s.category) == (module, "forward")]
        assert calls and lasted
        for one in calls:
            assert any(begin <= one.begin <= end for begin, end in lasted), (one, lasted)
    culprits = [one for one in reading.instants if one.category == "culprit"]
    assert {one.track.split()[1] for one in culprits if one.name.startswith("FIRST")} <= {"0", "1"}
    assert any(alone.first["fqn"] in one.name for one in culprits)


def kill_ranks(run_id: bytes) -> None:
    """The processes that their launcher started, not itself, with no chance to clean up."""
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            parent = re.search(r"PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
            started_by = Path(f"/proc/{parent[1]}/cmdline").read_bytes() if parent else b""
        except OSError:
            continue
        if run_id in environment and b"launch_ranks" in started_by:
            os.kill(pid, signal.SIGKILL)


def test_a_killed_run_is_inconclusive_and_readable(reference: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = launch(2, SCRIPT, "--steps", "100000", "--tp", "2")
    process = subprocess.Popen(
        [str(TTRACE), "record", "-o", str(trace), "--iterations", "0:100000", "--"]
        + ["/bin/sh", "-c", f"exec {command}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        indices: list[Path] = []
        while len(indices) < 2 or min(i.stat().st_size for i in indices) < 1 << 20:
            assert time.monotonic() < deadline, "the run has not written anything"
            time.sleep(0.2)
            indices = sorted(trace.glob("rank-*/index.jsonl"))
        run_id = re.search(r'"run_id":\s*"([0-9a-f]+)"', (trace / "manifest.json").read_text())
        assert run_id
        kill_ranks(run_id[1].encode())
        process.wait(timeout=120)
    finally:
        process.terminate()  # it would fill the disk
    outcome = ttrace("check", reference, trace, "-o", tmp_path / "report")
    assert outcome.code in (1, 2), outcome.explain()
    assert "incomplete" in outcome.text, outcome.explain()
    inspected = ttrace("inspect", trace)
    assert inspected.code == 0, inspected.explain()


# The zoo's trainer, after something was changed in what it imports.
CHANGED = """
import runpy, sys
sys.path.insert(0, {zoo!r})
import megatron_cpu
megatron_cpu.enable()
{change}
runpy.run_path({script!r}, run_name="__main__")
"""
CRASH = """
from megatron.core.pipeline_parallel import schedules
backward_step, calls = schedules.backward_step, []
def crash_at_the_second(*arguments):
    calls.append(None)
    if len(calls) == 2:
        raise RuntimeError("crash on purpose")
    return backward_step(*arguments)
schedules.backward_step = crash_at_the_second
"""
ONE_RANKS_DATA = """
import synthetic_tokens
sampler = synthetic_tokens.PretrainingSampler
synthetic_tokens.PretrainingSampler = lambda size, rank, world: sampler(size, 0, world)
"""


def changed(folder: Path, change: str, *flags: str) -> str:
    """The command of two processes that train so."""
    script = folder / "changed.py"
    zoo = ROOT / "zoo"
    script.write_text(CHANGED.format(zoo=str(zoo), script=str(zoo / SCRIPT), change=change))
    return launch(2, str(script), *flags)


def test_a_crash_between_micro_batches_is_no_finding(tmp_path: Path) -> None:
    # Half of the micro-batches: sums over them lack terms, later modules are missing.
    flags = ("--steps", "1", "--layers", "2")
    reference, candidate = tmp_path / "reference", tmp_path / "candidate"
    recorded = record_reference(reference, launch(1, SCRIPT, *flags), "0:1")
    assert recorded.code == 0, recorded.explain()
    crashing = changed(tmp_path, CRASH, *flags, "--pp", "2").split()
    recorded = ttrace("record", "-o", candidate, "--graft", reference, "--", *crashing)
    assert "crash on purpose" in recorded.text, recorded.explain()
    outcome = ttrace("check", reference, candidate, "-o", tmp_path / "r", folder=tmp_path / "r")
    assert outcome.code == 2, outcome.explain()
    assert outcome.result["culprits"] == []
    notes = " ".join(note["text"] for note in outcome.result["notes"])
    assert "sums over micro-batches are left out" in notes, notes


def test_ranks_that_read_the_same_data_are_found_though_data_is_grafted(
    reference: Path, tmp_path: Path
) -> None:
    candidate = changed(tmp_path, ONE_RANKS_DATA, "--steps", "2")
    outcome = diff(tmp_path / "report", reference, candidate, "--iterations", "0:1")
    assert outcome.code == 1, outcome.explain()
    assert len(outcome.result["culprits"]) == 1, outcome.explain()
    assert outcome.first["fqn"] == "data", outcome.explain()
    assert outcome.first["stage"] == "input", outcome.explain()
    assert outcome.first["ranks"] == [1], outcome.explain()
    assert outcome.letters[0] == "Z", outcome.explain()
    assert "rank 1 read the part of rank 0" in outcome.first["classes"][0]["evidence"]


def test_without_noise_legs_a_grafted_bug_is_no_pass(tmp_path: Path) -> None:
    flags = ("--steps", "1", "--layers", "2")
    plain = launch(1, SCRIPT, *flags).split()
    reference, candidate = tmp_path / "reference", tmp_path / "candidate"
    recorded = ttrace("record", "-o", reference, "--iterations", "0:1", "--", *plain)
    assert recorded.code == 0, recorded.explain()
    faulty = launch(2, SCRIPT, *flags, "--cp", "2", "--bug", "T12").split()
    recorded = ttrace(
        "record", "-o", candidate, "--graft", reference, "--iterations", "0:1", "--", *faulty
    )
    assert recorded.code == 0, recorded.explain()
    assert f"{reference} has no noise legs" in recorded.text
    outcome = ttrace("check", reference, candidate, "-o", tmp_path / "r", folder=tmp_path / "r")
    assert outcome.code == 2, outcome.explain()
    assert "no noise leg in the reference" in outcome.result["reason"]
    assert "--as-reference" in outcome.result["next_steps"][0]
    # A grafted run is a candidate, and is recorded as one.
    assert {"replay", "isolated"} < set(outcome.result["sides"]["candidate"]["legs"])
