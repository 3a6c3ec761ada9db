"""A leg calls hooks of the user's; one that may keep something from call to call is not called
again, and neither is an iteration that changes its parameters before the step."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from ttrace.adapters.torch.repeat.hooks_that_keep import HooksThatKeep
from ttrace.adapters.torch.repeat.unchanged import Unchanged

NORMS: list[float] = []
COUNT = 0


def plain(gradient):
    return gradient * 0.5


def noted(gradient):
    NORMS.append(float(gradient.norm()))


def counted(gradient):
    global COUNT
    COUNT += 1


def masked(mask):
    return lambda gradient: gradient * mask


def scaled(factors):
    return lambda gradient: gradient * factors[0]


def smoothed(mean):
    def hook(gradient):
        mean.mul_(0.9).add_(gradient, alpha=0.1)
        return gradient + mean

    return hook


def rebound():
    mean = None

    def hook(gradient):
        nonlocal mean
        mean = gradient if mean is None else 0.9 * mean + 0.1 * gradient
        return mean

    return hook


class Observer:
    def see(self, gradient):
        self.last = gradient

    def __call__(self, gradient):
        self.last = gradient


@pytest.mark.parametrize(
    ("hook", "keeps"),
    [
        (plain, False),
        (masked(torch.ones(3)), False),
        (functools.partial(torch.clamp, min=-1.0, max=1.0), False),
        (noted, True),
        (counted, True),
        (smoothed(torch.zeros(3)), True),
        (rebound(), True),
        (scaled([0.5]), True),
        (Observer().see, True),
        (Observer(), True),
        (functools.partial(lambda seen, gradient: seen.update(g=gradient), {}), True),
    ],
)
def test_what_a_hook_refers_to_decides(hook, keeps):
    model = nn.Linear(4, 3)
    model.bias.register_hook(hook)
    hooks = HooksThatKeep(model)
    model(torch.ones(2, 4)).sum().backward()
    problem = hooks.problem()
    assert bool(problem) == keeps, problem
    assert not keeps or "may keep something from one iteration to the next" in problem


@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_hooks_of_modules_are_looked_at(register):
    model = nn.Sequential(nn.Linear(4, 3))
    seen: list[int] = []
    getattr(model[0], register)(lambda *_: seen.append(1))
    assert "<lambda>" in HooksThatKeep(model).problem()


def test_parameters_that_are_changed_before_the_step_are_named():
    model = nn.Linear(4, 3)
    unchanged = Unchanged(model.named_parameters())
    assert unchanged.problem() == ""
    unchanged.step_begins([model.bias])
    with torch.no_grad():
        model.bias.mul_(2)  # by its step
    assert unchanged.problem() == ""
    model.weight.data.mul_(2)
    assert unchanged.problem() == "weight is changed before the step of its optimizer"


def test_a_change_before_the_first_of_several_steps_is_found():
    model = nn.Linear(4, 3)
    unchanged = Unchanged(model.named_parameters())
    model.bias.data.mul_(2)
    unchanged.step_begins([model.bias])
    assert "bias" in unchanged.problem()
