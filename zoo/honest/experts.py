"""Experts of which each row takes the best; a loss keeps them balanced by how many rows of the
whole batch each one got."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(10, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 10)) for _ in range(4)
        )
        self.head = nn.Linear(10, 5)

    def forward(self, x):
        chances = self.router(x).softmax(dim=-1)
        chance, chosen = chances.max(dim=-1)
        made = torch.stack([expert(x) for expert in self.experts], dim=1)
        made = made[torch.arange(len(x)), chosen] * chance[:, None]
        return self.head(x + made), chances, chosen


run = Run()
net = Experts()
x, kinds = run.normal(10), run.integers(5)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        logits, chances, chosen = model(x[rows])
        load = run.total(torch.bincount(chosen, minlength=4).to(x.dtype))
        balance = 4 * (load / load.sum() * chances).sum()
        loss = cross_entropy(logits, run.labels(kinds[rows]), reduction="sum")
        step.backward(loss + 0.5 * balance, len(rows))
    step.update(optimizer)
run.end()
