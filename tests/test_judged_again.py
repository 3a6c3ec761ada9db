"""Two builds' judgements of the same traces: what changed is listed, and what one alone judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import judged_again  # noqa: E402


def line(pair: str, verdict: str = "diverged", culprits: tuple[str, ...] = ("a.weight",)) -> dict:
    code = {"within": 0, "diverged": 1, "inconclusive": 2}[verdict]
    return {
        "pair": pair,
        "exit": code,
        "verdict": verdict,
        "culprits": list(culprits),
        "contested": [],
    }


def by_name(*lines: dict) -> dict[str, dict]:
    return {one["pair"]: one for one in lines}


def test_the_same_judgements_change_nothing():
    both = by_name(line("matrix/one"), line("planted/two", "within", ()))
    text, changed = judged_again.table(both, dict(both), {})
    assert not changed
    assert "| matrix | 1 | 1 | 0 |" in text
    assert "| planted | 1 | 1 | 0 |" in text
    assert "Verdicts: 1 diverged, 1 within" in text


def test_another_verdict_order_of_culprits_or_a_lost_pair_is_a_change():
    before = by_name(line("m/one"), line("m/two", culprits=("a", "b")), line("m/three"))
    after = by_name(line("m/one", "within", ()), line("m/two", culprits=("b", "a")))
    text, changed = judged_again.table(before, after, {"m/two": "meant"})
    assert changed == ["m/one", "m/three"]
    assert "| m/one | diverged (exit 1); a.weight | within (exit 0) | ? |" in text
    assert "| m/two | diverged (exit 1); a; b | diverged (exit 1); b; a | meant |" in text
    assert text[-1] == "Judged by one build alone: m/three."


def test_pairs_are_folders_with_both_traces_and_those_of_a_sweep_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(judged_again, "ROOT", tmp_path)
    (tmp_path / "kept/reference").mkdir(parents=True)
    for folder, trace in (("case", "candidate"), ("launch", "trace"), ("half", "nothing")):
        (tmp_path / "kept" / folder / trace).mkdir(parents=True)
        (tmp_path / "kept" / folder / trace / "manifest.json").write_text(
            json.dumps({"iterations": [3, 5]})
        )
        (tmp_path / "kept" / folder / "reference").symlink_to("../reference")
    names = [pair.name for pair in judged_again.pairs(tmp_path / "kept")]
    assert names == ["kept/case", "kept/launch iteration 3", "kept/launch iteration 4"]
