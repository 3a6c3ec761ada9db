"""Two views of each row go through the model in one batch; second views are gathered from all
ranks."""

import torch
import torch.distributed.nn.functional as collectives
from ranks import end, part, start
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import ttrace

rank, ranks = start()
net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    rows = torch.randn(16, 32, generator=data)
    views = [part(rows + 0.1 * torch.randn(16, 32, generator=data), rank, ranks) for _ in "12"]
    first, second = normalize(model(torch.cat(views)), dim=-1).chunk(2)
    others = torch.cat(collectives.all_gather(second)) if ranks > 1 else second
    targets = torch.arange(len(first)) + rank * len(first)
    cross_entropy(first @ others.T / 0.1, targets).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
