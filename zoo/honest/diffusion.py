"""A denoiser: rows, noise and times are mixed by the loop; the model says what the noise was."""

import torch
from run import Run
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(2, 16), nn.SiLU(), nn.Linear(16, 8))
        self.first, self.last = nn.Conv1d(2, 8, 3, padding=1), nn.Conv1d(8, 2, 3, padding=1)

    def forward(self, x, time):
        angle = torch.stack([(3 * time).sin(), (3 * time).cos()], dim=-1)
        return self.last(torch.tanh(self.first(x) + self.time(angle)[..., None]))


run = Run()
net = Denoiser()
x = run.normal(2, 10)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(x)
for step in run.steps():
    for rows in step.micro_batches(model):
        drawn = step.noise(rows, 21)
        noise, time = drawn[:, :20].reshape(-1, 2, 10), drawn[:, 20].sigmoid()
        share = time[:, None, None]
        mixed = share.sqrt() * next(batches) + (1 - share).sqrt() * noise
        losses = (model(mixed, time) - noise).pow(2).mean(dim=(1, 2))
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
run.end()
