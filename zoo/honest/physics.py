"""A network that is to solve an equation: derivatives by its inputs are in the loss."""

import torch
from run import Run
from torch import nn

run = Run()
net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
points, edge = run.normal(2), run.normal(2)
edge[:, 1] = 0
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        inside = points[rows].requires_grad_()
        value = model(torch.cat([inside, edge[rows]]))[: len(rows)]
        (slope,) = torch.autograd.grad(value.sum(), inside, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 0].sum(), inside, create_graph=True)
        rest = slope[:, 1] - 0.1 * bend[:, 0]
        start = value.squeeze(1) - run.labels(edge[rows, 0]).sin()
        step.backward((rest.pow(2) + start.pow(2)).sum(), len(rows))
    step.update(optimizer)
run.end()
