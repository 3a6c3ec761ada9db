"""Learning to learn: each row is a task, whose loss comes after a step of its own."""

import torch
from run import Run
from torch import nn


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 16), nn.Tanh())
        self.weight, self.bias = nn.Parameter(torch.randn(16) / 4), nn.Parameter(torch.zeros(1))

    def forward(self, seen_x, seen_y, x):
        """[tasks, places, 1], [tasks, places]: the last layer learns from what was seen."""
        hidden, more = self.body(seen_x), self.body(x)
        error = hidden @ self.weight + self.bias - seen_y
        weight = self.weight - 0.1 * (error[..., None] * hidden).mean(dim=1)
        bias = self.bias - 0.1 * error.mean(dim=1, keepdim=True)
        return (more * weight[:, None]).sum(dim=-1) + bias


run = Run()
net = Learner()
x, size, shift = run.normal(10, 1), run.normal(1), run.normal(1)
y = (size[:, None] * (x + shift[:, None]).sin()).squeeze(-1)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        made = model(x[rows, :5], run.partners(y[rows, :5]), x[rows, 5:])
        losses = (made - run.labels(y[rows, 5:])).pow(2).mean(dim=1)
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
run.end()
