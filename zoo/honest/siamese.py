"""Pairs are alike or are not: one network, called for each half of the pairs."""

import torch
from run import Run
from torch import nn

run = Run()
net = nn.Sequential(nn.Linear(12, 24), nn.ELU(), nn.Linear(24, 6))
left, right, alike = run.normal(12), run.normal(12), run.integers(2)
model = run.model(net)
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        distance = (model(left[rows]) - model(run.partners(right[rows]))).pow(2).sum(dim=1)
        is_alike = run.labels(alike[rows])
        losses = is_alike * distance + (1 - is_alike) * (2 - (distance + 1e-6).sqrt()).relu()
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
run.end()
