"""Activation checkpointing of a plain torch loop is the same run, with the same names."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.utils.checkpoint import checkpoint

import ttrace
from test_torch_native import entries


class Context:
    inside = False

    def __enter__(self):
        self.inside = True

    def __exit__(self, *_):
        self.inside = False


class Failing(nn.Module):
    """Its checkpointed function fails the first time, which it handles itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.context = Context()
        self.inside_handler = []

    def fails(self, x):
        raise ValueError("on purpose")

    def forward(self, x):
        try:
            made = (self.context, contextlib.nullcontext())
            return checkpoint(self.fails, x, use_reentrant=False, context_fn=lambda: made)
        except ValueError as error:
            self.inside_handler.append((str(error), self.context.inside))
            return self.layer(x)


def train(model, out):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ttrace.attach(model, optimizer, out=str(out))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()


def test_an_error_in_a_checkpointed_function_is_handled_outside_of_it(tmp_path):
    model = Failing()
    train(model, tmp_path)
    assert model.inside_handler == [("on purpose", False)] * 3


def model_of(wrap, wrap_all):
    torch.manual_seed(0)
    layers = [wrap(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 4)]
    return wrap_all(nn.Sequential(*layers))


def same(module):
    return module


def names(folder):
    return sorted(
        (e["iteration"], e["fqn"], e["role"], e["arg"], e["call"], e["pass"])
        for e in entries(folder)
        if e["type"] == "record"
    )


@pytest.mark.parametrize(
    ("wrap", "wrap_all"),
    [(checkpoint_wrapper, same), (offload_wrapper, same), (same, checkpoint_wrapper)],
)
def test_wrapped_modules_have_their_own_names(tmp_path, wrap, wrap_all):
    train(model_of(same, same), tmp_path / "plain")
    train(model_of(wrap, wrap_all), tmp_path / "wrapped")
    assert names(tmp_path / "wrapped") == names(tmp_path / "plain")
