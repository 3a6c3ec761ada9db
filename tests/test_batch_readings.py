"""Values whose shape does not say where the batch lies in them, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import launch, ttrace

SCRIPT = "positions_toy.py"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "trace"
    words = ("--as-reference", "--iterations", "0:1", "--")
    done = ttrace("record", "-o", folder, *words, *launch(1, SCRIPT).split())
    assert done.code == 0, done.explain()
    return folder


def judged(reference: Path, folder: Path, *flags: str):
    candidate = folder / "trace"
    words = ("--graft", reference, "--iterations", "0:1", "--")
    done = ttrace("record", "-o", candidate, *words, *launch(2, SCRIPT, *flags).split())
    assert done.code == 0, done.explain()
    return ttrace("check", reference, candidate, "-o", folder / "report", folder=folder / "report")


def test_positions_flattened_rows_and_made_weights_are_within(
    reference: Path, tmp_path: Path
) -> None:
    outcome = judged(reference, tmp_path)
    assert outcome.code == 0, outcome.explain()
    compared = {(t["fqn"], t["role"]) for t in outcome.result["tensors"] if not t["explained"]}
    # One row on each rank: [1, LENGTH, WIDTH] is no row.
    for name in ("norm", "segments", "up", "up.parametrizations.weight"):
        assert {(name, "output"), (name, "grad_output")} <= compared


@pytest.mark.matrix
def test_a_gradient_of_positions_that_is_not_averaged_is_found(
    reference: Path, tmp_path: Path
) -> None:
    outcome = judged(reference, tmp_path, "--bug")
    assert outcome.code == 1, outcome.explain()
    assert outcome.first["fqn"] == "positions.weight"
    assert outcome.first["role"] == "grad_reduced"
