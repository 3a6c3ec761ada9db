"""A communication hook of DDP reduces gradients in bf16, in every run."""

import torch
import torch.distributed as dist
from ranks import end, part, start
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.functional import cross_entropy

import ttrace

rank, ranks = start()
net = nn.Sequential(
    nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)
)
model = nn.parallel.DistributedDataParallel(net)
model.register_comm_hook(dist.group.WORLD, bf16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    x = torch.randn(16, 32, generator=data)
    y = torch.randint(10, (16,), generator=data)
    cross_entropy(model(part(x, rank, ranks)), part(y, rank, ranks)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
