"""Clouds of points: each point for itself, and then the largest of each cloud."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class CloudModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 24))
        self.cloud = nn.Sequential(nn.ReLU(), nn.Linear(24, 4))

    def forward(self, points, is_data):
        hidden = self.point(points).masked_fill(~is_data[..., None], -1e4)
        return self.cloud(hidden.amax(dim=1))


run = Run()
net = CloudModel()
clouds = [torch.randn(n, 3, generator=run.data) + 1 for n in run.lengths(4).tolist()]
kinds = run.integers(4)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        points, is_data = run.pad([clouds[row] for row in rows], 9.0)
        loss = cross_entropy(model(points, is_data), run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
