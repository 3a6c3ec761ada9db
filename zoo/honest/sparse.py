"""A table with sparse gradients and an optimizer of its own, beside dense layers."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(40, 8, sparse=True), nn.Linear(8, 5)

    def forward(self, words):
        return self.head(self.words(words).mean(dim=1).tanh())


run = Run()
net = Table()
words, kinds = run.integers(40, 6), run.integers(5)
model = run.model(net)
optimizers = [
    torch.optim.SparseAdam(list(net.words.parameters()), 1e-2),
    torch.optim.Adam(net.head.parameters(), 1e-3),
]
run.attach(model, *optimizers)
for step in run.steps():
    for rows in step.micro_batches(model):
        loss = cross_entropy(model(words[rows]), run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.update(*optimizers)
run.end()
