"""Two noisy views of each row in one batch; each view is to find the other among those of all
ranks."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, normalize

run = Run()
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
x = run.normal(16)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        views = [x[rows] + 0.1 * noise for noise in step.noise(rows, 2, 16).unbind(1)]
        first, second = normalize(model(torch.cat(views)), dim=-1).chunk(2)
        second = run.partners(second)
        targets = torch.arange(len(rows)) + run.rank * len(rows) * (not run.has("statistic"))
        loss = sum(
            cross_entropy(own @ run.gather(other).T / 0.2, targets, reduction="sum")
            for own, other in ((first, second), (second, first))
        )
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
