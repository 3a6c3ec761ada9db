"""Batch normalisation over all ranks, by hand: the bias of the convolution before it has no effect,
and its gradient is nothing but rounding."""

import torch
import torch.distributed.nn.functional as collectives
from ranks import end, part, start
from torch import nn
from torch.nn.functional import cross_entropy, relu

import ttrace


class NormOfAllRanks(nn.BatchNorm2d):
    def forward(self, x):
        if ranks == 1:
            return super().forward(x)
        count = ranks * x.numel() / x.shape[1]
        sums = torch.cat([x.sum((0, 2, 3)), x.pow(2).sum((0, 2, 3))])
        mean, square = (collectives.all_reduce(sums) / count).chunk(2)
        variance = square - mean.pow(2)
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        x = (x - mean[:, None, None]) * torch.rsqrt(variance + self.eps)[:, None, None]
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(3, 8, 3, padding=1), NormOfAllRanks(8)
        self.second, self.second_norm = nn.Conv2d(8, 16, 3, stride=2), NormOfAllRanks(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = relu(self.first_norm(self.first(x)))
        x = relu(self.second_norm(self.second(x)))
        return self.head(x.mean((2, 3)))


rank, ranks = start()
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    x = part(torch.randn(16, 3, 12, 12, generator=data), rank, ranks)
    y = part(torch.randint(10, (16,), generator=data), rank, ranks)
    cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
