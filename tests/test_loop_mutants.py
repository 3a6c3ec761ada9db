"""scripts/loop_mutants.py plants, compares in both ways, judges and writes its table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import loop_mutants
from loop_mutation.outcome import judged, said, same
from loop_mutation.plan import ITERATIONS, KINDS, Experiment, experiment, honest
from loop_mutation.table import write_table
from mutation.loops.mutant import FAULTS, LoopMutant

RATE = LoopMutant("optimizer lr", since=1, ranks="all", size=0.5, seed=5)


def result(*culprits: dict) -> dict:
    return {"verdict": "diverged" if culprits else "within", "reason": "", "culprits": culprits}


def culprit(fqn: str, role: str, *letters: str, iteration: int = 1) -> dict:
    classes = [{"class": letter, "evidence": "numbers"} for letter in letters]
    return {"fqn": fqn, "role": role, "stage": "optimizer", "iteration": iteration,
            "classes": classes, "headroom": "3.5"}  # fmt: skip


@pytest.mark.parametrize(
    ("culprits", "expected"),
    [
        ((), {"found": False, "accused": False}),
        ([("a.b", "param_updated", "H")],
         {"found": True, "accused": False, "place": True, "class": "right"}),
        ([("a.b", "param_updated")],
         {"found": True, "accused": False, "place": True, "class": "silent"}),
        ([("a.b", "param_updated", "S", "H")],
         {"found": True, "accused": False, "place": True, "class": "wrong"}),
        ([("a.c", "param_updated", "H")],
         {"found": True, "accused": False, "place": False, "class": "right"}),
        ([("a.b", "grad_reduced", "H")],
         {"found": True, "accused": False, "place": False, "class": "right"}),
    ],
)  # fmt: skip
def test_a_mutant_is_judged_by_its_first_culprit(culprits: list, expected: dict) -> None:
    outcome = said(result(*(culprit(*words) for words in culprits)))
    assert judged(RATE, ["a.b"], outcome) == expected


def test_an_iteration_before_the_fault_is_honest() -> None:
    found = said(result(culprit("a.b", "param_updated"), culprit("x", "output", iteration=0)))
    assert judged(RATE, ["a.b"], found)["accused"]
    assert judged(None, [], found) == {"accused": True}
    assert judged(None, [], said(result())) == {"accused": False}


def test_two_ways_are_the_same_or_it_is_said_in_what_they_differ() -> None:
    one = said(result(culprit("a", "output", "K", "R")))
    assert same(one, said(result(culprit("a", "output", "K")))) == []
    assert same(one, said(result(culprit("b", "output", "S")))) == ["fqn", "class"]
    assert same(one, said(result()))[0] == "verdict"


def test_a_seed_draws_every_mechanism_once_before_any_twice() -> None:
    drawn = [experiment(1, number) for number in range(len(FAULTS))]
    assert {one.mutant.name for one in drawn if one.mutant} == set(FAULTS)
    assert drawn == [experiment(1, number) for number in range(len(FAULTS))]
    for one in drawn:
        assert one.mutant is not None
        assert FAULTS[one.mutant.name].possible(one.kind.options)
        assert one.mutant.since >= FAULTS[one.mutant.name].first


@pytest.mark.matrix
def test_mutants_are_found_in_both_ways_and_an_honest_loop_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_mutants, "OUT", tmp_path)
    kind = KINDS["perceptron one rank"]
    half = LoopMutant("accumulation divisor", since=0, ranks="all", size=0.5, seed=5)
    alone = [Experiment(9, 0, kind, RATE), Experiment(9, 1, kind, half), honest(kind)]
    lines = [loop_mutants.measure(one, tmp_path, keep=False) for one in alone]
    rate, divided, right = lines
    for way in ("here", "apart"):
        assert rate[way]["place"] and rate[way]["class"] == "right", rate
        assert divided[way]["place"] and divided[way]["class"] == "right", divided
        assert right[way] | {"seconds": 0} == {
            "verdict": "bitwise_equal", "reason": right[way]["reason"], "accused": False,
            "seconds": 0,
        }  # fmt: skip
    assert not any(line["differing"] for line in lines)
    assert rate["relative"] > 0
    results = loop_mutants.Results(tmp_path / "results.jsonl")
    for line in lines:
        results.add(line)
    again = loop_mutants.Results(tmp_path / "results.jsonl")
    assert list(again.lines.values()) == json.loads(json.dumps(lines))
    assert again.mutants(9) == 2
    write_table(tmp_path / "table.md", list(again.lines.values()))
    text = (tmp_path / "table.md").read_text()
    assert "2 found, 0 open, 0 missed; place right 2 of 2" in text
    assert "Same in both ways: 2 of 2" in text


@pytest.mark.matrix
def test_a_mutant_that_changes_nothing_is_not_compared(tmp_path: Path) -> None:
    never = replace(RATE, since=ITERATIONS)
    one = Experiment(9, 2, KINDS["perceptron one rank"], never)
    line = loop_mutants.measure(one, tmp_path, keep=False)
    assert line["relative"] == 0
    assert "here" not in line
