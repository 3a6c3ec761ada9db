"""Contrast with a queue of earlier keys, which a slow copy of the network makes; keys of all ranks
enter it."""

import copy

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, normalize

run = Run()
net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8))
slow = copy.deepcopy(net).requires_grad_(False)
x = run.normal(12)
queue = normalize(torch.randn(8, 16, generator=run.data), dim=0)
model = run.model(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        with torch.no_grad():
            for mean, now in zip(slow.parameters(), net.parameters(), strict=True):
                mean.lerp_(now, 0.1)
            noise = step.noise(rows, 2, 12)
            key = normalize(slow(x[rows] + 0.1 * noise[:, 0]), dim=-1)
        query = normalize(model(x[rows] + 0.1 * noise[:, 1]), dim=-1)
        own = (query * run.partners(key)).sum(dim=1, keepdim=True)
        logits = torch.cat([own, query @ queue], dim=1) / 0.2
        wanted = torch.zeros(len(rows), dtype=torch.long)
        step.backward(cross_entropy(logits, wanted, reduction="sum"), len(rows))
        queue = torch.cat([queue, run.gather(key).detach().T], dim=1)[:, -16:]
    step.update(optimizer)
run.end()
