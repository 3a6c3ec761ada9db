"""Tensor parallelism by DTensor whose cuts do not come out even: 14 hidden units on 3 or 4 ranks
(torch gives the last rank what is left, nothing perhaps), a vocabulary of 33 and one of 5.

With --bug the first linear of the last block is cut anew before the second step from a copy that
was made when training began: a stale shard.
"""

import argparse

import torch
from ranks import end, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import ttrace

WORDS, WIDTH, HIDDEN, KINDS = 33, 8, 14, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.kinds = nn.Linear(WIDTH, KINDS)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.kinds(x)


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
_, ranks = start()
model = Tagger()
if ranks > 1:
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
    kept = ColwiseParallel(use_local_output=False)  # a plain tensor would not say its whole
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": kept, "down": RowwiseParallel()})
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate()),
        "kinds": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ttrace.attach(model, optimizer)
stale = model.blocks[1].up.weight
stale = (stale.full_tensor() if ranks > 1 else stale).detach().clone()
for step in range(3):
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (4, 6), generator=generator)
    if step == 1 and options.bug:
        weight = model.blocks[1].up.weight
        with torch.no_grad():
            weight.copy_(distribute_tensor(stale, weight.device_mesh, weight.placements))
    scores = model(words)
    nn.functional.cross_entropy(scores.flatten(0, 1), words.flatten() % KINDS).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
