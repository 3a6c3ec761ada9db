"""Every rank reads the whole global batch. `rows`: it gives the model its part of the rows. `loss`:
it gives the model all rows, and its loss counts its part of them. With --bug all ranks take the
first part."""

import argparse

import torch
from ranks import data_parallel, end, part, start
from torch import nn
from torch.nn.functional import cross_entropy

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("rows", "loss"))
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(
    nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
rows = torch.utils.data.TensorDataset(
    torch.randn(24, 6, generator=random), torch.randint(4, (24,), generator=random)
)
loader = torch.utils.data.DataLoader(rows, 8, shuffle=True, generator=random)
for x, y in loader:
    own = part(torch.arange(8), 0 if options.bug else rank, ranks)
    if options.how == "rows":
        said = model(x[own])
    else:
        said = model(x)[own]
    cross_entropy(said, y[own]).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
