"""Anchors, what is alike and what is not, three in one batch."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import normalize, softplus

run = Run()
net = nn.Sequential(nn.Linear(10, 32), nn.LeakyReLU(), nn.LayerNorm(32), nn.Linear(32, 8))
anchors = run.normal(10)
like, unlike = anchors + 0.2 * run.normal(10), run.normal(10)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        batch = torch.cat([anchors[rows], run.partners(like[rows]), unlike[rows]])
        anchor, near, far = normalize(model(batch), dim=-1).chunk(3)
        margin = (anchor - near).pow(2).sum(dim=1) - (anchor - far).pow(2).sum(dim=1)
        step.backward(softplus(margin).sum(), len(rows))
    step.update(optimizer)
run.end()
