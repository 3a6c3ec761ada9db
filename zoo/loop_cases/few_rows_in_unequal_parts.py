"""A batch of few rows under autocast, of which a quarter is one backward and the rest another: the
gradient that is left is smaller than the parts that are rounded. With --bug each rank loses one of
its parts."""

import contextlib
import sys

import torch
from ranks import data_parallel, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ttrace

BUG = "--bug" in sys.argv
WIDTH, ROWS = 16, 16


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.out(
            scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), is_causal=True)
        )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.take = nn.Linear(8, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.limited = nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.classes = nn.Parameter(torch.randn(WIDTH, 4) * 0.1)

    def forward(self, x, kinds):
        hidden = self.take(x)
        for layer in self.layers:
            hidden = hidden + layer(self.norm(hidden))
        hidden = self.limited(hidden + self.down(silu(self.up(hidden))))
        return cross_entropy((hidden.mean(1) @ self.classes).float(), kinds, reduction="sum")


rank, ranks = start()
model = data_parallel(Net())
data = TensorDataset(torch.randn(75, 6, 8), torch.randint(0, 4, (75,)))
sampler = DistributedSampler(data, ranks, rank, shuffle=True, seed=3)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
ttrace.attach(model, optimizer)
for x, kinds in DataLoader(data, ROWS // ranks, sampler=sampler):
    rows = total(torch.tensor(float(len(x))))
    cut = len(x) // 4
    parts = [(x[:cut], kinds[:cut]), (x[cut:], kinds[cut:])][BUG:]
    for part in parts:
        waits = ranks > 1 and part is not parts[-1]
        with model.no_sync() if waits else contextlib.nullcontext():
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(*part) * ranks / rows
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
end()
