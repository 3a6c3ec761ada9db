"""A sampler deals rows out in turn, and the loop deals its noise out alike. With --bug it deals the
noise in blocks: another row's noise is as good as one's own, but the runs differ."""

import argparse

import torch
from ranks import data_parallel, dealt, end, part, start
from torch import nn

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(nn.Linear(6, 6))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
for x in dealt(torch.randn(24, 6, generator=random), 8, rank, ranks):
    noise = torch.randn(8, 6, generator=random)
    mine = part(noise, rank, ranks) if options.bug else noise[rank::ranks]
    (model(x + 0.5 * mine) - mine).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
end()
