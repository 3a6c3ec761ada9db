"""Rows of few kinds, drawn with replacement and dealt in turn: ranks read equal rows by chance."""

import torch
from ranks import data_parallel, end, start
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import ttrace

rank, ranks = start()
model = data_parallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
kinds = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
rows = torch.utils.data.TensorDataset(kinds, (kinds.sum(1, keepdim=True) == 1).float())
drawn = torch.utils.data.WeightedRandomSampler(torch.ones(4), 48, generator=random)
order = list(drawn)
own = [row for begin in range(0, 48, 16) for row in order[begin + rank : begin + 16 : ranks]]
for x, y in torch.utils.data.DataLoader(rows, 16 // ranks, sampler=own):
    binary_cross_entropy_with_logits(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
