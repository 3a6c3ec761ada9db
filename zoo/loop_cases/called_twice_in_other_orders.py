"""The model is called by rows, and then on those rows and others in one batch."""

import torch
from ranks import end, part, start
from torch import nn

import ttrace

rank, ranks = start()
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    good, bad = (part(torch.randn(16, 32, generator=data), rank, ranks) for _ in range(2))
    size = model.module(good).pow(2).mean()
    better, worse = model(torch.cat([good, bad])).chunk(2)
    ((worse - better).mean() + size).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
