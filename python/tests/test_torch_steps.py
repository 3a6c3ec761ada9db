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


def run_with_closure(folder, make=adam, steps=STEPS + 1, before_step=nothing, capture=True):
    """Forward and backward are the step's own. Gives the weights at the end."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
    optimizer = make(model.parameters())
    if capture:
        ttrace.attach(model, optimizer, out=str(folder))
    for _ in range(steps):
        inputs, targets = torch.randn(5, 6), torch.randn(5, 4)

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            before_step(model)
            return loss

        assert optimizer.step(closure).dim() == 0
    return [parameter.detach().clone() for parameter in model.parameters()]


def losses(folder):
    return [
        (e["iteration"], e["micro_batch"])
        for e in entries(folder)
        if e["type"] == "record" and e["role"] == "loss"
    ]


@pytest.mark.parametrize("before_step", [nothing, clip])
def test_a_step_begins_when_its_closure_has_made_the_gradients(tmp_path, before_step):
    run_with_closure(tmp_path, before_step=before_step)
    code, text = check(tmp_path)
    assert (code, f"steps ({STEPS * PARAMETERS} of parameters)" in text) == (0, True), text
    assert losses(tmp_path) == [(i, 0) for i in range(STEPS)]
    assert not notes(tmp_path, "second_step")


def late(parameters):
    """Steps with half of what its closure has left."""

    class Late(torch.optim.SGD):
        def step(self, closure=None):
            with torch.enable_grad():
                loss = closure()
            for parameter in self.param_groups[0]["params"]:
                parameter.grad.mul_(0.5)
            super().step()
            return loss

    Late.__module__ = "torch.optim"
    Late.__name__ = "SGD"
    return Late(parameters, lr=0.1)


def test_a_step_with_other_gradients_than_its_closure_left_is_found(tmp_path):
    run_with_closure(tmp_path, late)
    code, text = check(tmp_path)
    assert code == 1, text
    assert "optimizer" in text


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, max_iter=3)


def test_of_a_step_that_evaluates_several_times_the_first_is_recorded(tmp_path):
    ours = run_with_closure(tmp_path, lbfgs)
    assert losses(tmp_path) == [(i, 0) for i in range(STEPS)]
    (said,) = [e for e in notes(tmp_path, "notice") if "several times" in e["text"]]
    assert "only the first is recorded" in said["text"]
    code, text = check(tmp_path)
    assert code == 2, text
    assert "LBFGS is not known" in text
    theirs = run_with_closure(tmp_path, lbfgs, capture=False)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_closure_that_makes_nothing_is_none(tmp_path):
    """As Lightning steps where the loop has called backward itself."""

    def make(parameters):
        optimizer = adam(parameters)
        step = optimizer.step
        optimizer.step = lambda: step(nothing)
        return optimizer

    train(tmp_path, make)
    code, text = check(tmp_path)
    assert (code, f"steps ({STEPS * PARAMETERS} of parameters)" in text) == (0, True), text


def test_a_second_step_is_one_with_a_closure_too(tmp_path):
    def again(model, optimizer):
        optimizer.step(closure=nothing)

    train(tmp_path, after_step=again)
    assert [note["iteration"] for note in notes(tmp_path, "second_step")] == list(range(STEPS - 1))
