"""No negatives: one view is to say what a slow copy makes of the other."""

import copy

import torch
from run import Run
from torch import nn
from torch.nn.functional import cosine_similarity


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 8))
        self.guess = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.guess(self.body(x))


run = Run()
net = Online()
teacher = copy.deepcopy(net.body).requires_grad_(False)
x = run.normal(12)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        noise = step.noise(rows, 2, 12)
        first, second = x[rows] + 0.2 * noise[:, 0], x[rows] + 0.2 * noise[:, 1]
        wanted = run.partners(teacher(torch.cat([second, first])))
        losses = 2 - 2 * cosine_similarity(model(torch.cat([first, second])), wanted)
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), net.body.parameters(), strict=True):
            slow.lerp_(fast, 0.1)
run.end()
