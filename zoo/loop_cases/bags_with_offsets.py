"""Recommendation: bags of indices, whose offsets count within a rank's batch, beside dense
features."""

import torch
from ranks import data_parallel, dealt, end, start
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import ttrace


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in range(2))
        self.head = nn.Linear(8 + 3, 1)

    def forward(self, dense, indices, offsets):
        made = zip(self.bags, indices, offsets, strict=True)
        vectors = torch.stack([self.dense(dense), *(bag(i, o) for bag, i, o in made)], dim=1)
        first, second = torch.triu_indices(3, 3, 1)
        products = (vectors @ vectors.transpose(1, 2))[:, first, second]
        return self.head(torch.cat([vectors[:, 0], products], dim=1)).squeeze(1)


def drawn(random):
    sizes = torch.randint(1, 5, (2,), generator=random).tolist()
    return (
        torch.randn(4, generator=random),
        [torch.randint(20, (size,), generator=random) for size in sizes],
        torch.randint(2, (), generator=random),
    )


def joined(rows):
    dense, bags, clicks = zip(*rows, strict=True)
    sizes = torch.tensor([[len(bag) for bag in pair] for pair in bags]).T
    indices = [torch.cat(column) for column in zip(*bags, strict=True)]
    offsets = list(sizes.cumsum(dim=1) - sizes)
    return torch.stack(dense), indices, offsets, torch.stack(clicks)


rank, ranks = start()
model = data_parallel(Recommender())
optimizer = torch.optim.Adagrad(model.parameters(), 1e-2)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
data = [drawn(random) for _ in range(24)]
for dense, indices, offsets, clicks in dealt(data, 8, rank, ranks, collate_fn=joined):
    logits = model(dense, indices, offsets)
    binary_cross_entropy_with_logits(logits, clicks.to(logits.dtype)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
