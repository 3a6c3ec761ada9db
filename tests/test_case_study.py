"""Bugs that megatron-core has as released, without and with their corrections, and what looked like
one. docs/case_study.md tells of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runs import ROOT, diff, launch, record_reference

sys.path.insert(0, str(ROOT / "scripts"))
from case_study_plan import BUGS, OPTIONS, TOPOLOGIES, Bug

SMALL = ("--steps", "2", "--layers", "2")
JUDGED = [bug for bug in BUGS if bug.fix]


@pytest.mark.matrix
@pytest.mark.parametrize("bug", JUDGED, ids=lambda bug: bug.key)
def test_a_released_bug_is_found_and_gone_when_corrected(bug: Bug, tmp_path: Path) -> None:
    option, topology = bug.cells[0].split(": ")
    flags = (*SMALL, *OPTIONS[option])
    processes, own = TOPOLOGIES[topology]
    reference = tmp_path / "reference"
    recorded = record_reference(reference, launch(1, "train_gpt.py", *flags))
    assert recorded.code == 0, recorded.explain()

    as_released = launch(processes, "train_gpt.py", *flags, *own)
    found = diff(tmp_path / "released", reference, as_released)
    assert found.code == 1, found.explain()
    if bug.key == "B1":
        assert "experts" in found.first["fqn"]
        assert found.first["stage"] == "communication"
        assert found.letters[0] == "P"

    corrected = diff(tmp_path / "corrected", reference, f"{as_released} --fix {bug.fix}")
    assert corrected.code == 0, corrected.explain()


def test_a_parameter_that_is_gathered_late_is_read_after_that(tmp_path: Path) -> None:
    """Sinks belong to a module whose parameters have no rule: they are not read when the forward
    begins, where ranks still wait for what others updated."""
    flags = ("--steps", "2", "--layers", "1", "--softmax", "learnable")
    reference = tmp_path / "reference"
    recorded = record_reference(reference, launch(1, "train_gpt.py", *flags))
    assert recorded.code == 0, recorded.explain()
    overlapped = launch(2, "train_gpt.py", *flags, *TOPOLOGIES["DP2 sharded"][1])
    outcome = diff(tmp_path / "overlapped", reference, overlapped)
    assert outcome.code == 0, outcome.explain()
    role = "param_updated"
    read = [tensor for tensor in outcome.result["tensors"] if tensor["role"] == role]
    assert any(tensor["fqn"].endswith("softmax_offset") for tensor in read)
