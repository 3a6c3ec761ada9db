"""Each rank holds a part of every sequence and gathers keys and values by itself; under DDP.

With --declare the loop says so. With --bug each rank takes its part for the first in the mask.
"""

import argparse

import torch
import torch.distributed.nn.functional as collectives
from ranks import data_parallel, end, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--declare", action="store_true")
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
WIDTH, HEADS, LENGTH, VOCABULARY = 32, 4, 16, 64
rank, ranks = start()
FIRST = 0 if options.bug else rank * LENGTH // ranks


def heads(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if ranks > 1:
            k, v = (torch.cat(collectives.all_gather(t.contiguous()), dim=1) for t in (k, v))
        past = torch.arange(k.shape[1]) <= FIRST + torch.arange(q.shape[1])[:, None]
        mixed = scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask=past)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(Attention(), Attention())
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, places):
        return self.head(self.layers(self.words(tokens) + self.places(places)))


model = data_parallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
said = {}
if options.declare and ranks > 1:
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("cp",))
    of_places = {"cp": Shard(0)}  # without rows
    placements = {"places": of_places, ":places": of_places, "*": {"cp": Shard(1)}}
    said = {"mesh": mesh, "placements": placements}
ttrace.attach(model, optimizer, **said)
data = torch.randint(VOCABULARY, (24, LENGTH + 1), generator=torch.Generator().manual_seed(1))
for batch in data.split(8):
    tokens, labels = (t.chunk(ranks, dim=1)[rank] for t in (batch[:, :-1], batch[:, 1:]))
    logits = model(tokens, torch.arange(LENGTH).chunk(ranks)[rank])
    cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
