"""AdamW is given a closure that holds forward and backward."""

import torch
from ranks import data_parallel, dealt, end, start
from torch import nn
from torch.nn.functional import cross_entropy

import ttrace

rank, ranks = start()
model = data_parallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
rows = torch.utils.data.TensorDataset(
    torch.randn(24, 8, generator=data), torch.randint(3, (24,), generator=data)
)


def closure():
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    return loss


for x, y in dealt(rows, 8, rank, ranks):  # noqa: B007 (the closure reads them)
    optimizer.step(closure)
end()
