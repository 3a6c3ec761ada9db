"""One process. Each of two branches is used in every other step; torch makes no step for parameters
that have no gradient."""

import torch
from ranks import end, start
from torch import nn

import ttrace


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.even, self.odd = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x, is_even):
        return (self.even if is_even else self.odd)(x)


start()
net = Branches()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
ttrace.attach(net, optimizer)
for step in range(4):
    net(torch.randn(4, 8), step % 2 == 0).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
end()
