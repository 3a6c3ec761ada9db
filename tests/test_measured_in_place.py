"""Legs that are measured where they run against the same legs as values: one result, less disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runs import bytes_of_tensors, launch, record_reference, ttrace

SCRIPT = "train_gpt.py"
FLAGS = (
    "--steps",
    "1",
    "--layers",
    "1",
    "--hidden",
    "256",
    "--heads",
    "4",
    "--seq",
    "64",
    "--bf16",
)
# Gradients of column-parallel inputs without their all-reduce, and the run as it should be.
CANDIDATES = {"fault": ("--bug", "T10"), "clean": ()}


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in {"measured": (), "kept": ("--keep-values",)}.items():
        # Checks name their folders: the same name, so that the results can be equal.
        folders[name] = tmp_path_factory.mktemp(name) / "reference"
        outcome = record_reference(folders[name], launch(1, SCRIPT, *FLAGS), "0:1", options)
        assert outcome.code == 0, outcome.explain()
    return folders


def without_clock(result: dict, names: dict[str, Path]) -> dict:
    """What the folders' names and the clock have nothing to do with."""
    text = json.dumps(result)
    for name, folder in names.items():
        text = text.replace(str(folder), name)
    left = json.loads(text)
    del left["seconds"]
    return left


@pytest.mark.parametrize("name", CANDIDATES)
def test_the_result_is_that_of_stored_values(
    name: str, references: dict[str, Path], tmp_path: Path
) -> None:
    assert bytes_of_tensors(references["measured"]) < bytes_of_tensors(references["kept"]) / 4
    candidate = tmp_path / "candidate"
    command = launch(2, SCRIPT, *FLAGS, "--tp", "2", *CANDIDATES[name])
    recorded = ttrace(
        *("record", "--graft", references["measured"], "--iterations", "0:1", "-o", candidate),
        *("--", "/bin/sh", "-c", "exec " + command),
    )
    assert recorded.code == 0, recorded.explain()
    kept = tmp_path / "kept"
    recorded = ttrace(
        *("record", "--graft", references["kept"], "--keep-values", "--iterations", "0:1"),
        *("-o", kept, "--", "/bin/sh", "-c", "exec " + command),
    )
    assert recorded.code == 0, recorded.explain()
    assert bytes_of_tensors(candidate) < bytes_of_tensors(kept) / 2
    results = {}
    pairs = {
        "measured": (references["measured"], candidate),
        "kept": (references["kept"], kept),
        # What was compared with one reference holds for another one of the same values.
        "mixed": (references["kept"], candidate),
    }
    for kind, (reference, candidate_of_pair) in pairs.items():
        folder = tmp_path / f"{kind}-report"
        outcome = ttrace("check", reference, candidate_of_pair, "-o", folder, folder=folder)
        assert outcome.code == (1 if name == "fault" else 0), outcome.explain()
        names = {"reference": reference, "candidate": candidate_of_pair}
        results[kind] = without_clock(outcome.result, names)
    assert results["measured"] == results["kept"]
    assert results["mixed"] == results["kept"]
    assert len(results["kept"]["tensors"]) > 50


# Tensors lie on both ranks: shards of a module, micro-batches of data-parallel ranks.
@pytest.mark.parametrize(
    "flags",
    [("--tp", "2", "--sp"), pytest.param((), marks=pytest.mark.matrix)],
    ids=["tp2sp", "dp2"],
)
def test_so_it_is_where_the_reference_has_several_ranks(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    references = {}
    for name, options in {"measured": (), "kept": ("--keep-values",)}.items():
        references[name] = tmp_path / name / "reference"
        command = launch(2, SCRIPT, *FLAGS, *flags)
        outcome = record_reference(references[name], command, "0:1", options)
        assert outcome.code == 0, outcome.explain()
    assert bytes_of_tensors(references["measured"]) < bytes_of_tensors(references["kept"]) / 2
    candidate = tmp_path / "candidate"
    command = launch(2, SCRIPT, *FLAGS, "--tp", "2", *CANDIDATES["fault"])
    recorded = ttrace(
        *("record", "--graft", references["kept"], "--keep-values", "--iterations", "0:1"),
        *("-o", candidate, "--", "/bin/sh", "-c", "exec " + command),
    )
    assert recorded.code == 0, recorded.explain()
    results = {}
    for name, reference in references.items():
        folder = tmp_path / f"{name}-report"
        outcome = ttrace("check", reference, candidate, "-o", folder, folder=folder)
        assert outcome.code == 1, outcome.explain()
        names = {"reference": reference, "candidate": candidate}
        results[name] = without_clock(outcome.result, names)
    assert results["measured"] == results["kept"]
    assert len(results["kept"]["tensors"]) > 50
