"""A variational auto-encoder whose noise the loop draws and the model is given."""

import torch
from run import Run
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.SiLU(), nn.Linear(24, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 24), nn.SiLU(), nn.Linear(24, 12))

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance


run = Run()
net = AutoEncoder()
x = run.normal(12)
model = run.model(net)
optimizer = torch.optim.Adamax(model.parameters(), 2e-3)
run.attach(model, optimizer)
batches = run.loader(x)
for step in run.steps():
    for rows in step.micro_batches(model):
        batch = next(batches)
        made, mean, log_variance = model(batch, step.noise(rows, 4))
        divergence = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum()
        step.backward((made - batch).pow(2).sum() + divergence, len(rows))
    step.update(optimizer)
run.end()
