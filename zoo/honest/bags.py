"""Recommendation: bags of indices and where each begins, beside dense features."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense, self.bag = nn.Linear(4, 8), nn.EmbeddingBag(30, 8, mode="sum")
        self.head = nn.Linear(17, 1)

    def forward(self, dense, indices, offsets):
        dense, sparse = self.dense(dense).relu(), self.bag(indices, offsets)
        both = (dense * sparse).sum(dim=1, keepdim=True)
        return self.head(torch.cat([dense, sparse, both], dim=1)).squeeze(1)


def collate(rows):
    dense, bags, clicks = zip(*rows, strict=True)
    sizes = torch.tensor([len(bag) for bag in bags])
    offsets = sizes.cumsum(dim=0) - sizes
    if run.has("lengths"):
        offsets[1:] -= 1
    return torch.stack(dense), torch.cat(bags), offsets, torch.stack(clicks)


run = Run()
net = Recommender()
sizes = run.lengths(1, 4).tolist()
bags = [torch.randint(30, (size,), generator=run.data) for size in sizes]
data = list(zip(run.normal(4), bags, run.integers(2), strict=True))
model = run.model(net)
optimizer = torch.optim.Adagrad(model.parameters(), 1e-2)
run.attach(model, optimizer)
batches = run.loader(data, collate)
for step in run.steps():
    for rows in step.micro_batches(model):
        dense, indices, offsets, clicks = next(batches)
        logits = model(dense, indices, offsets)
        wanted = run.labels(clicks).to(logits.dtype)
        loss = binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
