"""A layer of two matrices that works on local parts. What comes in is whole on every rank, and its
gradient is a term of a sum: `grad_placements` says so, and torch sums it. With --bug the loop does
not say so and nobody sums."""

import argparse

import torch
from ranks import end, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import ttrace


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(16, 32) / 4)
        self.down = nn.Parameter(torch.randn(32, 16) / 6)

    def forward(self, x):
        up, down = (w.to_local() if isinstance(w, DTensor) else w for w in (self.up, self.down))
        return torch.tanh(x @ up) @ down


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.pair = Pair()

    def forward(self, x):
        hidden = self.first(x)
        if mesh is None:
            return self.pair(hidden)
        hidden = DTensor.from_local(hidden, mesh, [Replicate()], run_check=False)
        hidden = hidden.to_local(grad_placements=None if options.bug else [Partial()])
        summed = DTensor.from_local(self.pair(hidden), mesh, [Partial()], run_check=False)
        return summed.full_tensor()


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
net, mesh = Net(), None
if ranks > 1:
    mesh = init_device_mesh("cpu", (ranks,))
    net.pair.up = nn.Parameter(distribute_tensor(net.pair.up.data, mesh, [Shard(1)]))
    net.pair.down = nn.Parameter(distribute_tensor(net.pair.down.data, mesh, [Shard(0)]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ttrace.attach(net, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    net(torch.randn(8, 16, generator=data)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
end()
