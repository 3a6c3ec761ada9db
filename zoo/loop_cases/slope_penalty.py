"""A critic of what is real, with a penalty on its slope between the real and the made: a gradient
of a gradient. With --bug the penalty, a mean already, is divided by the number of ranks."""

import argparse

import torch
from ranks import data_parallel, end, part, start
from torch import nn

import ttrace

ROWS, WIDTH = 16, 10

parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
critic = nn.Sequential(
    nn.Linear(WIDTH, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)
)
model = data_parallel(critic)
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.0, 0.9))
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(4)
for _ in range(3):
    real, made = (
        part(torch.randn(ROWS, WIDTH, generator=random), rank, ranks) + shift for shift in (2, 0)
    )
    share = part(torch.rand(ROWS, 1, generator=random), rank, ranks)
    between = (share * real + (1 - share) * made).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    if options.bug:
        penalty = penalty / ranks
    of_real, of_made = model(torch.cat([real, made])).chunk(2)
    (of_made.mean() - of_real.mean() + 10 * penalty).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
