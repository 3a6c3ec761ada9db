"""Parameters that one run alone trains, or changes beside its step."""

from pathlib import Path

import pytest
import torch
from torch import nn

import ttrace
from test_torch_loops import verdict
from test_torch_native import notes


def train(folder, frozen=lambda step: False, before_step=lambda model, optimizer: None, kind=None):
    """Two steps; of some of them the first layer's weight is not trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = (kind or torch.optim.AdamW)(model.parameters(), lr=0.01)
    ttrace.attach(model, optimizer, out=str(folder))
    x = torch.randn(3, 8, 6, generator=torch.Generator().manual_seed(1))
    for step in range(3):
        model[0].weight.requires_grad_(not frozen(step))
        optimizer.zero_grad()
        model(x[step]).square().mean().backward()
        before_step(model, optimizer)
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


@torch.no_grad()
def decay(model, _):
    model[0].weight.mul_(0.9)


@torch.no_grad()
def there_and_back(model, _):
    """Sharpness-aware training moves weights and moves them back, but for rounding."""
    moved = torch.full_like(model[0].weight, 0.01)
    model[0].weight.add_(moved)
    model[0].weight.sub_(moved)


def test_a_weight_that_one_loop_changes_before_its_step_is_named(tmp_path, trained):
    code, text = verdict(trained, train(tmp_path / "out", before_step=decay))
    assert code == 1, text
    words = " ".join(text.split())
    assert "first at 0.weight (update, optimizer), iteration 0, class C" in words
    assert "when the step of iteration 0 begins, what its forward began with" in words
    both = train(tmp_path / "both", before_step=decay)
    assert verdict(both, train(tmp_path / "again", before_step=decay))[0] == 0
    assert verdict(both, train(tmp_path / "forgets"))[0] == 1


def test_what_is_taken_back_is_no_change(tmp_path):
    moved = train(tmp_path / "moved", before_step=there_and_back)
    assert '"arg":"used"' not in "".join(str(n) for n in notes(moved, "found_states"))
    assert [n["changed"] for n in notes(moved, "found_states")] == [[], []]


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.AdamW])
def test_state_of_any_optimizer_is_kept_from_step_to_step(tmp_path, kind):
    """Also of one whose step is not made again."""

    def forget(_, optimizer):
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    kept = train(tmp_path / "kept", kind=kind)
    code, text = verdict(kept, train(tmp_path / "forgets", before_step=forget, kind=kind))
    assert code == 1, text
    assert "class C" in text
