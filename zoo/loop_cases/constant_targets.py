"""A discriminator: on every rank the first half of the targets is one and the second zero."""

import torch
from ranks import end, part, start
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import ttrace

rank, ranks = start()
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    real, made = (part(torch.randn(16, 32, generator=data), rank, ranks) for _ in range(2))
    targets = torch.cat([torch.ones(len(real), 1), torch.zeros(len(made), 1)])
    logits = model(torch.cat([real, made]))
    binary_cross_entropy_with_logits(logits, targets).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
