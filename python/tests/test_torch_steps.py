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
from test_torch_native import Tensors, entries, notes

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
    """Forward and backward are the step's own. Gives the weights at the end, and of each step the
    loss that it returned: that of its first call."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
    optimizer = make(model.parameters())
    if capture:
        ttrace.attach(model, optimizer, out=str(folder))
    returned = []
    for _ in range(steps):
        inputs, targets = torch.randn(5, 6), torch.randn(5, 4)

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            before_step(model)
            return loss

        returned.append(optimizer.step(closure).detach())
    return [parameter.detach().clone() for parameter in model.parameters()], returned


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


def broken(step, **settings):
    """SGD with another step, which only its numbers can tell."""

    class Broken(torch.optim.SGD):
        pass

    Broken.step = step
    Broken.__module__, Broken.__name__ = "torch.optim", "SGD"
    return lambda parameters: Broken(parameters, lr=0.1, **settings)


def with_half_of_the_gradients(self, closure):
    with torch.enable_grad():
        loss = closure()
    for parameter in self.param_groups[0]["params"]:
        parameter.grad.mul_(0.5)
    torch.optim.SGD.step(self)
    return loss


def test_a_step_with_other_gradients_than_its_closure_left_is_found(tmp_path):
    run_with_closure(tmp_path, broken(with_half_of_the_gradients))
    code, text = check(tmp_path)
    assert code == 1, text
    assert "optimizer" in text


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, max_iter=3)


def test_of_a_step_that_evaluates_several_times_the_first_is_recorded(tmp_path):
    ours, first = run_with_closure(tmp_path / "trace", lbfgs)
    tmp_path, scratch = tmp_path / "trace", tmp_path / "scratch"
    assert losses(tmp_path) == [(i, 0) for i in range(STEPS)]
    recorded = Tensors(tmp_path, scratch)
    for i in range(STEPS):  # and what was evaluated again is no part of it
        value = recorded["loss", "loss", i, 0, "value", "forward"]
        assert float(value) == float(first[i])
    (said,) = [e for e in notes(tmp_path, "notice") if "several times" in e["text"]]
    assert "only the first is recorded" in said["text"]
    code, text = check(tmp_path)
    assert code == 2, text
    assert "LBFGS is not known" in text
    theirs, _ = run_with_closure(tmp_path, lbfgs, capture=False)
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


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x, first):
        return (self.first if first else self.second)(x)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def take_branches(folder, make=adam, set_to_none=True):
    """Every other iteration uses the one and the other."""
    torch.manual_seed(3)
    model = Branches()
    optimizer = make(model.parameters())
    ttrace.attach(model, optimizer, out=str(folder))
    for i in range(STEPS + 1):
        optimizer.zero_grad(set_to_none)
        model(torch.randn(5, 6), i % 2 == 0).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("make", [adam, sgd])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_leaves_parameters_without_a_gradient_alone(tmp_path, make, set_to_none):
    take_branches(tmp_path, make, set_to_none)
    code, text = check(tmp_path)
    # What is left alone is made again, too.
    assert (code, f"steps ({STEPS * PARAMETERS} of parameters)" in text) == (0, True), text
    named = [(note["iteration"], note["parameters"]) for note in notes(tmp_path, "no_gradient")]
    expected = [(0, ["second.weight", "second.bias"]), (1, ["first.weight", "first.bias"])]
    # Zeros that an earlier backward left behind are a gradient.
    assert named == (expected if set_to_none else expected[:1])


def with_decay_of_all(self):
    """As if what has no gradient had zeros."""
    for parameter in self.param_groups[0]["params"]:
        if parameter.grad is None:
            parameter.data.mul_(1 - 0.1 * 0.1)
    torch.optim.SGD.step(self)


def test_a_step_that_changes_what_has_no_gradient_is_found(tmp_path):
    take_branches(tmp_path, broken(with_decay_of_all, weight_decay=0.1))
    code, text = check(tmp_path)
    assert code == 1, text
    assert "first at second" in text


def without_the_second(self):
    left_out = [p for p in self.param_groups[0]["params"] if p.grad is not None][1]
    gradient, left_out.grad = left_out.grad, None
    torch.optim.SGD.step(self)
    left_out.grad = gradient


def test_a_step_that_was_not_made_although_there_was_a_gradient_is_found(tmp_path):
    take_branches(tmp_path, broken(without_the_second))
    code, text = check(tmp_path)
    assert code == 1, text
    assert "a step that was not made" in text and "first at first.bias" in text
