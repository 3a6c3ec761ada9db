"""Iterations of plain loops are run again in the loop's own process, and ten steps later not a bit
is different; what cannot be run again says so and is left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from captured_run import index, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "zoo/loop_styles"))
from styles import STYLES

DIGESTS = "python/tests/step_digests.py"
LEGS = "replay,noise:1,fp32,isolated.noise:1"
# What is said of a style that cannot be run again.
LEFT = {"in-turn": "has stepped"}
QUICK = ("accumulated", "in-turn", "in-place", "weighted", "two-optimizers", "hooks")


def named(style):
    return pytest.param(style, id=style, marks=() if style in QUICK else pytest.mark.matrix)


def digests(style, ranks, out=None):
    how = {} if out is None else {"TTRACE_OUT": out, "TTRACE_LEGS": LEGS}
    # Capture switches dropout off only where a run is compared with another.
    return run(("loop_styles/styles.py", style), processes=ranks, script=DIGESTS, **how)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("style", [named(style) for style in STYLES])
def test_an_iteration_runs_again_and_nothing_is_changed(style, ranks, tmp_path):
    out = tmp_path / "trace"
    plain, _ = digests(style, ranks)
    captured, log = digests(style, ranks, out)
    assert "ttrace:" not in log
    assert captured == plain
    for rank in range(ranks):
        lines = index(out, rank)
        notes = [line["data"] for line in lines if line.get("kind") == "replayer"]
        if style in LEFT:
            assert [note["name"] for note in notes] == ["none"]
            assert LEFT[style] in notes[0]["reason"]
            continue
        assert notes == [{"name": "torch"}], notes
        seals = {(line["leg"], line["iteration"]) for line in lines if line["type"] == "seal"}
        assert seals >= {(leg, i) for leg in ("real", "replay", "noise.1") for i in (0, 1)}
