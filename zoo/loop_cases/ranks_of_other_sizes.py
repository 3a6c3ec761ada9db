"""Rows are dealt by what they are about. `none`: of a batch a rank may get no row, and calls the
model all the same. `filled`: the last rank has a row too few, and fills its part up with a copy
that has no weight; with --bug the copy counts."""

import argparse

import torch
from ranks import data_parallel, end, start
from torch import nn
from torch.nn.functional import cross_entropy

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("none", "filled"))
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
optimizer = torch.optim.Adagrad(model.parameters(), 1e-2)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
rows = torch.randn(21, 6, generator=random)
kinds = torch.randint(3, (21,), generator=random)
subjects = torch.randint(4, (21,), generator=random)
subjects[7:14] = 2
for batch in torch.arange(21).split(7):
    if options.how == "none":
        own = batch[subjects[batch] % ranks == rank]
        weights = torch.ones(len(own))
    else:
        size = -(-len(batch) // ranks)
        own = batch[rank * size : (rank + 1) * size]
        missing = size - len(own)
        own = torch.cat([own, batch[:missing]])
        weights = torch.ones(size)
        weights[size - missing :] = float(options.bug)
    losses = cross_entropy(model(rows[own]), kinds[own], reduction="none")
    ((losses * weights).sum() * ranks / len(batch)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
