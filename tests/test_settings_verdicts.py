"""Runs that were told different things: hyperparameters, dropout. Real runs of the zoo."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import diff, launch, record_reference, ttrace

SCRIPT = "train_gpt.py"
FLAGS = ("--steps", "2", "--layers", "2")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings") / "reference"
    outcome = record_reference(folder, launch(1, SCRIPT, *FLAGS), "0:1")
    assert outcome.code == 0, outcome.explain()
    return folder


# One iteration shows none of these in any tensor that is compared with the reference.
DIFFERENCES = {
    "lr": (("--lr", "2e-3"), "lr is 0.002 where the reference has 0.001", 2),
    "weight decay": (
        ("--weight-decay", "0.1"),
        "weight_decay is 0.1 where the reference has 0.01",
        10,
    ),
    "betas": (
        ("--adam-beta2", "0.95"),
        "betas is (0.9, 0.95) where the reference has (0.9, 0.999)",
        None,
    ),
    "clip": (("--clip", "0.5"), "clip_grad is 0.5 where the reference has 1", 0.5),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "lr" else pytest.mark.matrix) for n in DIFFERENCES],
)
def test_another_hyperparameter_is_found(name: str, reference: Path, tmp_path: Path) -> None:
    flags, evidence, value = DIFFERENCES[name]
    candidate = launch(2, SCRIPT, *FLAGS, "--tp", "2", *flags)
    outcome = diff(tmp_path / "report", reference, candidate, "--iterations", "0:1")
    assert outcome.code == 1, outcome.explain()
    assert len(outcome.result["culprits"]) == 1, outcome.explain()
    first = outcome.first
    assert (first["stage"], first["direction"]) == ("optimizer", "update")
    assert first["found_by"] == ["settings"]
    assert first["affected"]["count"] == first["affected"]["of"] > 20
    (found,) = first["classes"]
    assert found["class"] == "H"
    assert found["evidence"].startswith(evidence), outcome.explain()
    assert found["value"] == (None if value is None else pytest.approx(value))


@pytest.mark.matrix
def test_a_step_of_a_warm_up_that_moves_nothing_is_a_note(tmp_path: Path) -> None:
    flags = (*FLAGS, "--lr", "0")
    recorded = record_reference(tmp_path / "reference", launch(1, SCRIPT, *flags), "0:1")
    assert recorded.code == 0, recorded.explain()
    candidate = launch(2, SCRIPT, *flags, "--tp", "2")
    outcome = diff(tmp_path / "report", tmp_path / "reference", candidate, "--iterations", "0:1")
    assert outcome.code == 0, outcome.explain()
    notes = " ".join(note["text"] for note in outcome.result["notes"])
    assert "the step of iteration 0 moves nothing: the learning rate is 0" in notes, notes


@pytest.mark.matrix
def test_a_reference_with_dropout_says_how_to_record_it(tmp_path: Path) -> None:
    flags, kept = (*FLAGS, "--dropout", "0.1"), tmp_path / "kept"
    command = launch(1, SCRIPT, *flags).split()
    recorded = ttrace("record", "--as-reference", "--iterations", "0:1", "-o", kept, "--", *command)
    assert recorded.code == 0, recorded.explain()
    candidate = launch(2, SCRIPT, *flags, "--tp", "2")
    outcome = diff(tmp_path / "report", kept, candidate, "--iterations", "0:1")
    assert outcome.code == 2, outcome.explain()
    assert outcome.result["culprits"] == []
    assert "the reference ran with dropout (p 0.1)" in outcome.result["reason"]
    assert "--dropout off" in outcome.result["reason"]


# What a router makes of the tokens that it sees at once is a function of which these are.
OTHER_TOKENS = {
    "aux loss": (
        ("--aux-loss", "aux_loss"),
        (2, "--ep", "2", "--micro-batch", "1"),
        "tokens in a router's auxiliary loss is 64 in the reference and 32 in the candidate",
    ),
    "aux loss of all": (
        ("--aux-loss", "global_aux_loss"),
        (2, "--ep", "2"),
        "tokens in a router's global auxiliary loss is 64 in the reference and 128 in the"
        " candidate",
    ),
    "capacity": (
        ("--capacity-factor", "1.0"),
        (2, "--tp", "2", "--sp", "--etp", "2"),
        "tokens among which an expert's capacity is shared is 64 in the reference and 32 in the"
        " candidate",
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "aux loss" else pytest.mark.matrix) for n in OTHER_TOKENS],
)
def test_routers_that_see_other_tokens_accuse_nobody(name: str, tmp_path: Path) -> None:
    options, (processes, *topology), reason = OTHER_TOKENS[name]
    flags = (*FLAGS, "--experts", "4", *options)
    recorded = record_reference(tmp_path / "reference", launch(1, SCRIPT, *flags), "0:1")
    assert recorded.code == 0, recorded.explain()
    candidate = launch(processes, SCRIPT, *flags, *topology)
    outcome = diff(tmp_path / "report", tmp_path / "reference", candidate, "--iterations", "0:1")
    assert outcome.code == 2, outcome.explain()
    assert outcome.result["culprits"] == []
    assert reason in outcome.result["reason"], outcome.explain()


@pytest.mark.matrix
def test_what_routers_learnt_before_is_given_with_the_weights(tmp_path: Path) -> None:
    """Steps before capture began may have turned choices, and with them a router's bias."""
    flags = ("--steps", "3", "--layers", "2", "--experts", "4", "--expert-bias")
    flags = (*flags, "--router-scores", "sigmoid")
    recorded = record_reference(tmp_path / "reference", launch(1, SCRIPT, *flags), "2:3")
    assert recorded.code == 0, recorded.explain()
    candidate = launch(2, SCRIPT, *flags, "--ep", "2", "--seed", "2")
    outcome = diff(tmp_path / "report", tmp_path / "reference", candidate, "--iterations", "2:3")
    assert outcome.code == 0, outcome.explain()
    assert outcome.result["not_checkable"] == 0, outcome.explain()
    notes = " ".join(note["text"] for note in outcome.result["notes"])
    assert "decoder.layers.0.mlp.router.expert_bias" in notes, notes
