"""A buffer holds the running mean of what was seen, over all ranks, and the forward uses it. With
--bug each rank keeps the mean of its own rows."""

import argparse

import torch
from ranks import data_parallel, end, part, start, total
from torch import nn

import ttrace


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        made = self.linear(x - self.mean)
        mean = x.mean(0)
        self.mean.lerp_(mean if options.bug else total(mean) / ranks, 0.1)
        return made


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(Normalised())
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
rows = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
mine = [part(torch.arange(first, first + 8), rank, ranks).tolist() for first in (0, 8, 16)]
for x in torch.utils.data.DataLoader(rows, batch_sampler=mine):
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
end()
