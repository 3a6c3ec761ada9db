"""Regression by a small network of linears."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import mse_loss

run = Run()
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
x = run.normal(6)
y = x.sin().sum(dim=1, keepdim=True)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        loss = mse_loss(model(x[rows]), run.labels(y[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
