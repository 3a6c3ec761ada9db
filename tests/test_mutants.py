"""A handful of the sweep's mutants, in one launch: each iteration is an experiment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runs import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from mutation_sweep.launch import Sweep, read_log, record_candidate, record_reference
from mutation_sweep.plan import Launch, Mutant
from sweep import judge

MODEL = ("--layers", "2", "--hidden", "32", "--ffn", "64", "--seq", "16", "--vocab", "64")
BATCH = ("--micro-batch", "1", "--global-batch", "2")
MUTANTS = (
    Mutant(1, "collective", "drop", "all", 0.1, 14),
    Mutant(3, "output", "row", "one", 0.1, 3),
    Mutant(4, "grad_input", "all", "all", 0.1, 4),
    Mutant(5, "update", "skip", "one", 0.1, 8),
)


@pytest.fixture(scope="module")
def launch() -> Launch:
    flags = ("--tp", "2", "--sp")
    return Launch(0, "tp2sp", 2, flags, MODEL + BATCH, False, False, MUTANTS)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, launch: Launch) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    sweep = Sweep(folder, 7, "noise:3", "replay", 300)
    record_reference(sweep, launch)
    record_candidate(sweep, launch)
    return sweep


def test_each_mutant_is_found_at_its_place_and_no_other_iteration(
    sweep: Sweep, launch: Launch
) -> None:
    entries = judge(sweep, launch)
    assert [entry["kind"] for entry in entries] == [
        *("clean", "mutant", "clean", "mutant", "mutant", "mutant", "clean")
    ]
    for entry in entries:
        assert entry["not_repeatable"] == "", "a rerun must meet the same fault"
        if entry["kind"] == "clean":
            assert entry["culprits"] == [], entry
            assert entry["verdict"] == "within"
        else:
            assert entry["detected"], entry
            assert entry["verdict"] == "diverged"
            assert entry["window"] == 0, entry
            # One rerun, of an iteration's schedule and not of its optimizer step.
            assert entry["mutant"]["reruns"] == (entry["mutant"]["family"] != "update")
            assert entry["mutant"]["quiet_reruns"] == 0


def test_what_happened_is_logged_by_each_rank(sweep: Sweep, launch: Launch) -> None:
    log = [line for line in read_log(sweep, launch) if "iteration" in line]
    assert {line["rank"] for line in log} == {0, 1}
    holders = {line["iteration"]: 0 for line in log}
    for line in log:
        if line["run"] == 0:
            holders[line["iteration"]] += line["holds"]
            assert (line["error"] > 0) == line["holds"]
    assert holders == {1: 2, 3: 1, 4: 2, 5: 1}


# Of topologies that the launch above has nothing of: flags, model, mutants.
FURTHER = {
    "vpp2": (
        ("--pp", "2", "--vpp", "2"),
        ("--layers", "4"),
        (
            Mutant(1, "collective", "permute", "one", 0.1, 7),
            Mutant(3, "weight", "all", "one", 0.1, 9),
        ),
    ),
    "ep2_sharded": (
        ("--ep", "2", "--distributed-optimizer", "--overlap-grad-reduce"),
        ("--experts", "4"),
        (
            Mutant(1, "collective", "drop", "all", 0.1, 6),
            Mutant(3, "grad_local", "gain", "all", 0.1, 4),
        ),
    ),
}


@pytest.mark.parametrize("name", ["vpp2", pytest.param("ep2_sharded", marks=pytest.mark.matrix)])
def test_mutants_are_found_at_their_place_on_further_axes(name: str, tmp_path: Path) -> None:
    flags, more, mutants = FURTHER[name]
    model = (*MODEL, *BATCH, *more, "--global-batch", "4")
    launch = Launch(0, name, 2, flags, model, False, False, mutants)
    sweep = Sweep(tmp_path, 5, "noise:3,isolated.noise:2", "replay,isolated", 300)
    record_reference(sweep, launch)
    record_candidate(sweep, launch)
    entries = judge(sweep, launch)
    assert [entry["kind"] for entry in entries] == ["clean", "mutant", "clean", "mutant", "clean"]
    for entry in entries:
        assert entry["verdict"] == ("within" if entry["kind"] == "clean" else "diverged")
        if entry["kind"] == "mutant":
            assert entry["window"] == 0, entry
