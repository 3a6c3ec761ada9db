"""A rank of the trial of `ttrace doctor`: one step of a small model on two ranks with gloo."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

import ttrace

torch.distributed.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ttrace.attach(model, optimizer)
for _ in range(2):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
