"""Modules that one run leaves in evaluation mode are named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from captured_run import compared
from launch_ranks import launcher

SCRIPT = """
import sys

import torch
from torch import nn

import ttrace

torch.manual_seed(3)
model = nn.Sequential(
    nn.Linear(6, 64), nn.BatchNorm1d(64), nn.Dropout(0.25), nn.GELU(), nn.Linear(64, 4)
)
for place in sys.argv[1:]:
    if place == "p":
        model[2].p = 0.0
    else:
        model[int(place)].eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(5)
for _ in range(2):
    optimizer.zero_grad()
    out = model(torch.randn(16, 6, generator=data))
    (out - torch.randn(16, 4, generator=data)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace of the script with one place in evaluation mode ("": with none), recorded once."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "script.py").write_text(SCRIPT)

    def record(place, side):
        out = folder / f"{side}{place}"
        if not out.exists():
            legs = ["--as-reference", "--legs", "replay,noise:2"] if side == "reference" else []
            options = ["--dropout", "off", *legs]
            command = [sys.executable, "-m", "ttrace._cli", "record", "-o", str(out), *options]
            script = [*launcher(0), str(folder / "script.py"), *([place] if place else [])]
            subprocess.run([*command, "--", *script], check=True)
        return out

    return record


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "evidence"),
    [
        ("", "1", "1 is in evaluation mode (`eval()`) in the candidate and in training mode"),
        ("1", "", "1 is in evaluation mode (`eval()`) in the reference and in training mode"),
        ("", "2", "mode) where the reference drops with probability 0.25"),
        ("", "p", "mode) where the reference drops with probability 0.25"),
        ("2", "", "with probability 0.25 where the reference drops nothing"),
        ("1", "1", None),
        ("2", "2", None),
    ],
)
def test_a_module_in_evaluation_mode(recorded, tmp_path, of_reference, of_candidate, evidence):
    sides = recorded(of_reference, "reference"), recorded(of_candidate, "candidate")
    result = compared(tmp_path / "verdict", *sides)
    if evidence is None:
        assert (result["verdict"], result["culprits"]) == ("bitwise_equal", [])
        return
    assert result["verdict"] == "diverged"
    first = result["culprits"][0]
    assert first["fqn"] == (of_reference or of_candidate).replace("p", "2")
    assert first["classes"][0]["class"] == "H"
    assert evidence in first["classes"][0]["evidence"]


@pytest.mark.parametrize("first", [0, 1])
def test_a_model_that_is_trained_in_evaluation_mode_is_refused(tmp_path, first):
    """Where nothing of it was captured, by `record`; later on, by a check."""
    evaluate = f"    if _ == {first}:\n        model.eval()\n    optimizer.zero_grad()"
    (tmp_path / "script.py").write_text(SCRIPT.replace("    optimizer.zero_grad()", evaluate))
    trace = str(tmp_path / "trace")
    tool = [sys.executable, "-m", "ttrace._cli"]
    command = [*tool, "record", "-o", trace, "--", *launcher(0), str(tmp_path / "script.py")]
    if first > 0:
        subprocess.run(command, check=True)
        command = [*tool, "check", "-o", str(tmp_path / "verdict"), trace, trace]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ended.returncode == 2
    said = " ".join(ended.stdout.split())
    assert "training in evaluation mode is not supported: the optimizer steps after" in said
    assert "call model.train() before the loop" in said
