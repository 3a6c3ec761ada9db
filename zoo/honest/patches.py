"""A transformer of patches of images, in which some patches are dropped at random."""

import torch
from attention import Block
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 4, 4)
        self.places, self.first = (
            nn.Parameter(0.02 * torch.randn(9, 16)),
            nn.Parameter(torch.zeros(1, 1, 16)),
        )
        self.layers = nn.ModuleList(Block(16) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, images, kept):
        hidden = self.cut(images).flatten(2).transpose(1, 2) + self.places
        hidden = torch.cat([self.first.expand(len(hidden), -1, -1), hidden], dim=1)
        seen = nn.functional.pad(kept, (1, 0), value=True)
        allowed = seen[:, None] | torch.eye(10, dtype=torch.bool)
        for layer in self.layers:
            hidden = layer(hidden, allowed)
        return self.head(self.norm(hidden[:, 0]))


run = Run()
net = Patches()
rows_of_data = torch.utils.data.TensorDataset(run.normal(3, 12, 12), run.integers(5))
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95))
run.attach(model, optimizer)
batches = run.loader(rows_of_data)
for step in run.steps():
    for rows in step.micro_batches(model):
        images, kinds = next(batches)
        logits = model(images, step.noise(rows, 9) > -0.5)
        loss = cross_entropy(logits, run.labels(kinds), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
