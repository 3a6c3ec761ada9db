"""Steps of a plain torch loop are made again from what its ranks recorded, whatever the loop does
around them; what it does that is not known is said and never judged."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn

import ttrace
from test_torch_native import entries, notes

STEPS = 2  # captured by default; one more is made
PARAMETERS = 4


class Mine(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * parameter.grad.sign())


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def nothing(*_):
    pass


def halve(optimizer, *_):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(0.5)


def halve_before_each_step(model, optimizer):
    optimizer.register_step_pre_hook(halve)


def clamp_after_each_step(model, optimizer):
    """Behind capture's own hook, when the last captured step ends."""

    def clamp(*_):
        for parameter in model.parameters():
            parameter.data.clamp_(-0.2, 0.2)

    optimizer.register_step_post_hook(clamp)


def clip(model, limit=0.01):
    nn.utils.clip_grad_norm_(model.parameters(), limit)


def clip_by_parts(model):
    first, *others = model.parameters()
    nn.utils.clip_grad_norm_([first], 0.01)
    nn.utils.clip_grad_norm_(others, 0.02)


def clip_and_change(model):
    clip(model)
    for parameter in model.parameters():
        parameter.grad.mul_(0.5)


def clip_and_replace(model):
    clip(model)
    for parameter in model.parameters():
        mine = parameter.grad * 0.5
        while mine._version < parameter.grad._version:
            mine.mul_(1)
        parameter.grad = mine


def clip_values(model):
    nn.utils.clip_grad_value_(model.parameters(), 0.001)


def train(
    folder,
    make=adam,
    around=nothing,
    before_step=nothing,
    after_step=nothing,
    after_backward=nothing,
    micro_batches=1,
):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
    optimizer = make(model.parameters())
    ttrace.attach(model, optimizer, out=str(folder))
    around(model, optimizer)
    for _ in range(STEPS + 1):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            (model(torch.randn(5, 6)) - torch.randn(5, 4)).square().mean().backward()
            after_backward(model)
        before_step(model)
        optimizer.step()
        after_step(model, optimizer)
    return optimizer


def check(folder):
    command = [sys.executable, "-m", "ttrace._cli", "check", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("around", "before_step"),
    [
        (nothing, nothing),
        (nothing, clip),
        (nothing, clip_values),
        (halve_before_each_step, nothing),
        (clamp_after_each_step, nothing),
    ],
)
def test_all_captured_steps_are_made_again(tmp_path, around, before_step):
    train(tmp_path, adam, around, before_step)
    code, text = check(tmp_path)
    assert (code, f"steps ({STEPS * PARAMETERS} of parameters)" in text) == (0, True), text


def test_the_state_after_each_step_is_recorded_within_its_iteration(tmp_path):
    train(tmp_path)
    found = Counter(
        (e["iteration"], e["arg"])
        for e in entries(tmp_path)
        if e["type"] == "record" and e["role"] == "optim_state" and e["pass"] == "optimizer"
    )
    names = ("updated", "exp_avg", "exp_avg_sq", "step")
    assert found == {(i, name): PARAMETERS for i in range(STEPS) for name in names}


@pytest.mark.parametrize("before_step", [clip_by_parts, clip_and_change, clip_and_replace])
def test_gradients_that_the_loop_changes_itself_are_not_taken_for_those_of_the_step(
    tmp_path, before_step
):
    train(tmp_path, before_step=before_step)
    code, text = check(tmp_path)
    assert code == 2, text
    assert "what the loop's own change of gradients does is not known" in text


def test_an_algorithm_that_is_not_known_is_said(tmp_path):
    train(tmp_path, Mine)
    code, text = check(tmp_path)
    assert code == 2, text
    assert "the optimizer's algorithm is not known" in text


def test_no_hook_does_anything_after_the_last_captured_step(tmp_path):
    optimizer = train(tmp_path)
    (end,) = [e for e in entries(tmp_path) if e["type"] == "end"]
    assert end["complete"]
    assert len(notes(tmp_path, "optimizer_group")) == STEPS
    # What torch would go through while it was removed stays, and the rest is gone.
    assert len(optimizer._optimizer_step_pre_hooks) <= 1
    assert len(optimizer._optimizer_step_post_hooks) <= 1
