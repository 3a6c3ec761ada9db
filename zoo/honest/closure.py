"""The optimizer is given a closure that holds forward and backward."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy

run = Run()
net = nn.Sequential(nn.Linear(7, 20), nn.ReLU(), nn.Linear(20, 4))
x, kinds = run.normal(7), run.integers(4)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)


def closure():
    optimizer.zero_grad()
    for rows in step.micro_batches(model):
        loss = cross_entropy(model(x[rows]), run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.scale_gradients(optimizer)
    return step.loss


for step in run.steps():
    optimizer.step(closure)
    step.done()
run.end()
