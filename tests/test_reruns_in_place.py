"""A plain loop is compared with one launch for each side, and what only legs in fp32 can show is
found in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs import launch, ttrace

STYLES = "loop_styles/styles.py"
LEGS = ("--reference-legs", "replay,noise:1,fp32,fp32.noise:1", "--legs", "fp32")


def compared(folder: Path, style: str, *more: str, bug: bool = False):
    return ttrace(
        "diff", "-o", folder, "--no-first-step", *LEGS, *more,
        "--reference", launch(1, STYLES, style),
        "--candidate", launch(2, STYLES, style, *(["--bug"] if bug else [])),
        folder=folder,
    )  # fmt: skip


def test_a_fault_below_the_noise_of_bfloat16_is_found_in_fp32(tmp_path: Path) -> None:
    """Scores that are a thousandth too large: bfloat16 has less than three digits."""
    found = compared(tmp_path / "found", "autocast", bug=True)
    assert found.code == 1, found.explain()
    assert found.first["fqn"] == "loss", found.explain()
    assert "is launched" not in found.text, found.explain()


@pytest.mark.matrix
def test_where_each_leg_is_a_launch_there_is_none_in_fp32(tmp_path: Path) -> None:
    missed = compared(tmp_path / "missed", "autocast", "--launch-per-leg", bug=True)
    assert missed.code == 0, missed.explain()
    assert "asked for one launch per leg), so the command is launched 2 more times" in missed.text
    honest = compared(tmp_path / "honest", "autocast")
    assert honest.code == 0, honest.explain()


@pytest.mark.matrix
def test_what_cannot_run_again_is_launched_with_the_reason(tmp_path: Path) -> None:
    outcome = compared(tmp_path / "report", "smoothed")
    assert outcome.code in (0, 2), outcome.explain()
    assert "from one iteration to the next), so the command is launched" in outcome.text
