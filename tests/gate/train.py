"""A training script as a repository has it that gates its pull requests: one process, or ranks of
DistributedDataParallel that start from the same weights and deal the same rows."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ttrace

ROWS, TOKENS, WORDS = 8, 17, 64

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, WORDS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ddp = DistributedDataParallel(model) if world > 1 else model
ttrace.attach(ddp, optimizer)
dealt = torch.Generator().manual_seed(1)
for _step in range(2):
    rows = torch.randint(0, WORDS, (ROWS, TOKENS), generator=dealt).chunk(world)[rank]
    logits = ddp(rows[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
