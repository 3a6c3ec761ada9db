"""A step that is made between two forwards is made again, by a copy of its optimizer and on other
tensors than the run's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ttrace.adapters.torch.repeat.ambient import Ambient
from ttrace.adapters.torch.repeat.kept_step import CannotBeKept, KeptStep
from ttrace.adapters.torch.repeat.needed import needed
from ttrace.adapters.torch.repeat.tape import Event, Kind


def parameters(dtype=torch.float32):
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(3, 4, dtype=dtype)), nn.Parameter(torch.randn(4, dtype=dtype))]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def leaves_of(given, dtype=None):
    leaves = [nn.Parameter(p.detach().to(dtype or p.dtype, copy=True)) for p in given]
    for leaf, parameter in zip(leaves, given, strict=True):
        leaf.grad = parameter.grad.to(leaf.dtype, copy=True)
    return {id(p): leaf for p, leaf in zip(given, leaves, strict=True)}


class Averaging(torch.optim.SGD):
    """With attributes of its own, which torch does not copy."""

    def __init__(self, given, lr):
        super().__init__(given, lr=lr, momentum=0.9)
        self.steps, self.mine = 0, list(self.param_groups[0]["params"])

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        self.steps += 1
        for parameter in self.mine:
            parameter.mul_(1 - 0.1 / self.steps)


@pytest.mark.parametrize(
    "kind",
    [
        lambda given: torch.optim.Adam(given, lr=0.1),
        lambda given: torch.optim.AdamW(given, lr=0.1, amsgrad=True, foreach=False),
        lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, nesterov=True),
        lambda given: torch.optim.RMSprop(given, lr=0.1, momentum=0.5),
        lambda given: Averaging(given, lr=0.1),
    ],
)
def test_a_copy_makes_the_step_that_the_run_makes(kind):
    given = parameters()
    optimizer = kind(given)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()  # it has a state by now
    scheduler.step()
    told = []
    optimizer.register_step_pre_hook(lambda *_: told.append("before"))
    handle = register_optimizer_step_post_hook(lambda *_: told.append("after"))
    state, values = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in given]
    kept = KeptStep(optimizer, keeps_gradients=False)
    for _ in range(2):
        leaves = leaves_of(given)
        stepped = kept.make(leaves, in_fp32=False, as_found=False)
        assert stepped == list(leaves.values())
    assert told == []
    assert all(map(torch.equal, given, values))
    assert str(optimizer.state_dict()) == str(state)
    optimizer.step()
    handle.remove()
    assert (told[0], told[-1]) == ("before", "after")
    assert all(map(torch.equal, given, stepped))
    assert not any(map(torch.equal, given, values))


def test_gradients_are_those_that_were_kept_where_they_are_asked_for():
    given = parameters()
    optimizer = torch.optim.Adam(given, lr=0.1)
    kept = KeptStep(optimizer, keeps_gradients=True)
    leaves = leaves_of(given)
    for leaf in leaves.values():
        leaf.grad.neg_()
    stepped = kept.make(leaves, in_fp32=False, as_found=True)
    optimizer.step()
    assert all(map(torch.equal, given, stepped))


def test_in_fp32_states_are_in_fp32():
    given = parameters(torch.bfloat16)
    optimizer = torch.optim.Adam(given, lr=0.1)
    optimizer.step()
    kept = KeptStep(optimizer, keeps_gradients=False)
    stepped = kept.make(leaves_of(given, torch.float32), in_fp32=True, as_found=False)
    assert {leaf.dtype for leaf in stepped} == {torch.float32}


class Elsewhere(torch.optim.SGD):
    """Steps what a function gives."""

    def __init__(self, given, lr):
        super().__init__(given, lr=lr)
        self.others = lambda: given

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.others():
            parameter.sub_(parameter.grad)


class Handle:
    def __deepcopy__(self, memo):
        raise RuntimeError("this handle is of one process")


def test_what_cannot_be_made_again_is_said():
    given = parameters()
    with pytest.raises(CannotBeKept, match="LBFGS evaluates the iteration itself"):
        KeptStep(torch.optim.LBFGS(given), keeps_gradients=False)
    scaled = torch.optim.SGD(given, lr=0.1)
    scaled.grad_scale = torch.ones(())
    with pytest.raises(CannotBeKept, match="SGD divides gradients by a scaler's scale"):
        KeptStep(scaled, keeps_gradients=False)
    held = torch.optim.SGD(given, lr=0.1)
    held.handle = Handle()
    with pytest.raises(CannotBeKept, match=r"cannot be copied .*of one process"):
        KeptStep(held, keeps_gradients=False)
    kept = KeptStep(Elsewhere(given, lr=0.1), keeps_gradients=False)
    with pytest.raises(CannotBeKept, match="Elsewhere keeps its parameters elsewhere, too"):
        kept.make(leaves_of(given), in_fp32=False, as_found=False)


def event(kind, *, takes=(), makes=(), changes=(), name=""):
    return Event(kind, name, None, ((), {}), takes, Ambient.now(), makes=makes, changes=changes)


def test_a_step_is_needed_where_the_model_runs_after_it():
    memory = [100, 200, 300, 400]  # a gradient, a parameter, an output, another gradient
    clipped = event(Kind.CALL, takes=(0,), changes=(0,), name="mul_")
    stepped = event(Kind.STEP, takes=(0,), makes=(1,))
    bounded = event(Kind.CALL, takes=(1,), changes=(1,), name="clamp_")
    forward = event(Kind.MODEL, makes=(2,))
    backward = event(Kind.BACKWARD, takes=(2,), makes=(3,))
    given_out = event(Kind.GIVEN_OUT)
    events = [clipped, stepped, bounded, forward, backward, given_out]
    assert needed(events, memory, [3]) == events
    events = [forward, backward, clipped, given_out, stepped, bounded]
    assert needed(events, memory, [3]) == [forward, backward, given_out]
