"""Sketches and digests instead of values, against full references and as a baseline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from index_lines import read_lines
from runs import Outcome, launch, ttrace

SCRIPT = "train_gpt.py"
SIZE = ("--steps", "1", "--layers", "1", "--hidden", "256", "--heads", "4", "--seq", "64", "--bf16")
# Gradients of column-parallel inputs without their all-reduce: of copies, and of what they sum to.
FAULT = ("--bug", "T10")


def record(out: Path, ranks: int, *flags: str, options: tuple[object, ...] = ()) -> None:
    command = "exec " + launch(ranks, SCRIPT, *SIZE, *flags)
    outcome = ttrace(
        *("record", "--iterations", "0:1", *options, "-o", out, "--", "/bin/sh", "-c", command)
    )
    assert outcome.code == 0, outcome.explain()


def result_of(reference: Path, candidate: Path, out: Path) -> dict[str, Any]:
    outcome = ttrace("check", reference, candidate, "-o", out)
    assert outcome.code in (0, 1, 2), outcome.explain()
    return json.loads((out / "result.json").read_text())


def bytes_of(folder: Path) -> int:
    """Of tensors: a segment reserves room for its header."""
    lines = (line for path in folder.rglob("index.jsonl") for line in read_lines(path))
    return sum(r["bytes"] for r in lines if r["type"] == "record" and "same_as" not in r)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    record(folder / "reference", 1, options=("--as-reference", "--dropout", "off"))
    for mode in ("full", "sketch", "bits"):
        legs = ("--mode", mode, "--legs", "replay,fp32")
        options = ("--bitwise",) if mode == "bits" else legs
        record(folder / f"clean-{mode}", 2, "--tp", "2", options=options)
        record(folder / f"fault-{mode}", 2, "--tp", "2", *FAULT, options=options)
    outcome = ttrace("baseline", folder / "reference", "-o", folder / "golden")
    assert outcome.code == 0, outcome.explain()
    return folder


@pytest.mark.parametrize("reference", ("reference", "golden"))
@pytest.mark.parametrize("mode", ("full", "sketch"))
def test_a_clean_run_is_within_and_a_fault_is_placed(
    reference: str, mode: str, runs: Path, tmp_path: Path
) -> None:
    by_values = result_of(runs / "reference", runs / "fault-full", tmp_path / "values")
    clean = result_of(runs / reference, runs / f"clean-{mode}", tmp_path / "clean")
    assert clean["verdict"] == "within", clean["reason"]
    fault = result_of(runs / reference, runs / f"fault-{mode}", tmp_path / "fault")
    assert fault["verdict"] == "diverged"
    first, expected = fault["culprits"][0], by_values["culprits"][0]
    for key in ("fqn", "role", "direction", "stage", "ranks"):
        assert first[key] == expected[key], key
    assert first["classes"][0]["class"] == expected["classes"][0]["class"]
    assert first["headroom"] == pytest.approx(expected["headroom"], rel=0.2)
    has_summaries = (reference, mode) != ("reference", "full")
    assert ("fidelity" in fault) == has_summaries
    if has_summaries:
        assert clean["fidelity"]["sketch"] > 50


def test_what_a_verdict_stands_on_is_said(runs: Path) -> None:
    outcome = ttrace("check", runs / "golden", runs / "clean-sketch")
    assert re.search(r"compared by: values of \d+, sketches of \d+, digests of \d+", outcome.text)


def test_digests_tell_equal_from_other_and_no_more(runs: Path, tmp_path: Path) -> None:
    other = result_of(runs / "reference", runs / "clean-bits", tmp_path / "other")
    assert other["verdict"] == "inconclusive"
    assert "digests do not tell" in other["reason"]
    asked = f"ttrace check --bitwise {runs / 'reference'} {runs / 'clean-bits'}"
    assert asked in other["next_steps"]


def bitwise(*traces: Path) -> Outcome:
    return ttrace("check", "--bitwise", *traces)


def test_one_computation_twice_is_the_same_bit_for_bit(runs: Path) -> None:
    for one, other in (("clean-full", "clean-bits"), ("clean-bits", "clean-bits")):
        outcome = bitwise(runs / one, runs / other)
        assert outcome.code == 0, outcome.explain()
        assert re.search(r"the same computation bit for bit: all \d{3,} tensors", outcome.text)


def test_the_first_tensor_that_has_other_bits_is_named(runs: Path, tmp_path: Path) -> None:
    # Two ranks add in another order than one: equal to a tolerance, and not bit for bit.
    outcome = bitwise(runs / "reference", runs / "clean-bits")
    assert outcome.code == 1, outcome.explain()
    assert "first at embedding" in outcome.text or "layers.0" in outcome.text, outcome.explain()
    # The fault is in the output layer: what comes before it is the same bit for bit.
    out = tmp_path / "fault"
    outcome = ttrace("check", "--bitwise", runs / "clean-bits", runs / "fault-bits", "-o", out)
    assert outcome.code == 1, outcome.explain()
    result = json.loads((out / "result.json").read_text())
    assert result["bitwise"]
    first = result["culprits"][0]
    assert first["fqn"] == "output_layer" and first["iteration"] == 0
    assert not first["classes"]
    equal = sum(t["verdict"] == "bitwise_equal" for t in result["tensors"])
    assert equal > 10


def test_of_a_trace_that_lacks_tensors_nothing_is_said_to_be_the_same(
    runs: Path, tmp_path: Path
) -> None:
    # What was left out by --select is said, and what one run lacks otherwise leaves it open.
    some = ("--bitwise", "--select", "role=output")
    record(tmp_path / "some", 2, "--tp", "2", options=some)
    outcome = bitwise(runs / "clean-bits", tmp_path / "some")
    text = " ".join(outcome.text.split())
    assert re.search(r"all \d+ tensors that are compared, and \d+ are not", text)
    record(tmp_path / "larger", 2, "--tp", "2", "--layers", "3", options=("--bitwise",))
    outcome = bitwise(runs / "clean-bits", tmp_path / "larger")
    assert outcome.code != 0, outcome.explain()
    assert bitwise(runs / "clean-bits").code == 2


def test_inspect_shows_what_was_kept(runs: Path) -> None:
    for trace, kept, places in (
        ("clean-sketch", "kept instead: a digest, a sketch of 1,024 numbers, a sample of", 256),
    ):
        outcome = ttrace("inspect", runs / trace, "*0.mlp.linear_fc1 output*", "--leg", "real")
        text = " ".join(outcome.text.split())
        assert outcome.code == 0, outcome.explain()
        assert kept in text, outcome.explain()
        # Ranks and micro-batches share the places of the tensor.
        numbers = re.findall(r"a sample of (\d+) elements", text)
        assert len(numbers) > 1
        assert sum(map(int, numbers)) == places


def test_sizes(runs: Path) -> None:
    assert bytes_of(runs / "clean-sketch") < bytes_of(runs / "clean-full") / 6
    assert bytes_of(runs / "clean-bits") < bytes_of(runs / "clean-full") / 50
    assert bytes_of(runs / "golden") < bytes_of(runs / "reference") / 8


def test_a_sketched_candidate_is_isolated_by_a_full_reference(runs: Path, tmp_path: Path) -> None:
    options = ("--mode", "sketch", "--graft", runs / "reference")
    record(tmp_path / "candidate", 2, "--tp", "2", *FAULT, options=options)
    result = result_of(runs / "reference", tmp_path / "candidate", tmp_path / "out")
    assert result["verdict"] == "diverged"
    assert result["isolation"]["faulty"] > 0
    assert result["culprits"][0]["fqn"] == "output_layer"


def test_parts_of_a_check_of_summaries_are_the_whole(runs: Path, tmp_path: Path) -> None:
    whole = result_of(runs / "golden", runs / "fault-sketch", tmp_path / "whole")
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in ("1/2", "2/2"):
        words = ("check", runs / "golden", runs / "fault-sketch")
        outcome = ttrace(*words, "--part", part, "--out-part", f"{parts}/")
        assert outcome.code == 0, outcome.explain()
    outcome = ttrace("merge", parts, "-o", tmp_path / "merged")
    merged = json.loads((tmp_path / "merged" / "result.json").read_text())
    whole["seconds"] = merged["seconds"] = 0
    assert merged == whole


def test_what_takes_values_is_refused_with_the_reason(runs: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    for words, reason in {
        ("--graft", runs / "golden"): "holds summaries, not values",
        ("--mode", "sketch", "--legs", "isolated"): "takes the values of the run itself",
        ("--mode", "sketch", "--keep-values"): "contradict each other",
        ("--bitwise", "--legs", "replay"): "leave out --legs",
        ("--bitwise", "--graft", runs / "reference"): "leave out --graft",
    }.items():
        outcome = ttrace("record", *words, "-o", new, "--", "true")
        assert outcome.code == 2
        assert reason in outcome.text, outcome.explain()
        assert not new.exists()
    outcome = ttrace("baseline", tmp_path / "nowhere", "-o", new)
    assert outcome.code == 2
    assert not new.exists()
