"""A test suite of optimizers that step many parameters at once, against the plain one: as a project
would write it for its own.

    pytest zoo/suites/fused_optimizer.py            # right
    PLANTED=1 pytest zoo/suites/fused_optimizer.py  # with the bug, which one test finds

The bug: a fused kernel is fastest on one group of all parameters, and what is put into one group
loses that biases and norms have no weight decay. Losses of a few steps do not show it.
"""

import os

import torch
from torch import nn

import ttrace

WIDTH, DECAY = 32, 0.1
PLANTED = bool(os.environ.get("PLANTED"))


def groups_of(model, merged):
    if merged:
        return [{"params": list(model.parameters()), "weight_decay": DECAY}]
    return [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]


def train(merged=False, clip=False, optimizer=torch.optim.AdamW, **options):
    torch.manual_seed(0)
    up, down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
    model = nn.Sequential(up, nn.LayerNorm(4 * WIDTH), nn.GELU(), down)
    optimizer = optimizer(groups_of(model, merged), lr=1e-2, **options)
    ttrace.attach(model, optimizer)
    numbers = torch.Generator().manual_seed(1)
    for _ in range(2):
        x = torch.randn(8, WIDTH, generator=numbers)
        optimizer.zero_grad()
        (model(x) - 1).square().mean().backward()
        if clip:
            foreach = options.get("foreach")
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=foreach)
        optimizer.step()


def one_by_one():
    train(foreach=False)


def fused():
    train(merged=PLANTED, fused=True)


def momentum_one_by_one():
    train(optimizer=torch.optim.SGD, momentum=0.9, clip=True, foreach=False)


def momentum_of_many():
    train(optimizer=torch.optim.SGD, momentum=0.9, clip=True, foreach=True)


def of_many():
    train(foreach=True)


def test_of_many(ttrace):
    result = ttrace.compare(one_by_one, of_many, ranks=(1, 1))
    assert result.within, result.text


def test_fused(ttrace):
    result = ttrace.compare(one_by_one, fused, ranks=(1, 1))
    assert result.within, result.text


def test_clipped_momentum(ttrace):
    result = ttrace.compare(momentum_one_by_one, momentum_of_many, ranks=(1, 1))
    assert result.within, result.text
