"""Parameters that one run alone trains."""

from pathlib import Path

import pytest
import torch
from torch import nn

import ttrace
from test_torch_loops import verdict


def train(folder, frozen=lambda step: False):
    """Two steps; of some of them the first layer's weight is not trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ttrace.attach(model, optimizer, out=str(folder))
    x = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(1))
    for step in range(3):
        model[0].weight.requires_grad_(not frozen(step))
        optimizer.zero_grad()
        model(x[step]).square().mean().backward()
        optimizer.step()
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("trained") / "out")


@pytest.mark.parametrize("step", [0, 1])
def test_what_the_candidate_alone_freezes_is_named(tmp_path, trained, step):
    code, text = verdict(trained, train(tmp_path / "out", lambda at: at == step))
    assert code == 1, text
    words = " ".join(text.split())
    assert f"first at 0.weight (backward, compute), iteration {step}, class M" in words
    if step == 1:  # values show it where a run begins so
        assert "finds no gradient (None) of 1 parameter" in words


def test_what_both_freeze_is_no_fault(tmp_path):
    traces = [train(tmp_path / name, lambda at: at == 1) for name in ("one", "two")]
    assert verdict(*traces)[0] == 0
