"""No wrapper: the loop averages gradients by itself. A frozen model with low-rank additions, which
with --bug each rank starts from a seed of its own."""

import argparse

import torch
import torch.distributed as dist
from ranks import end, part, start
from token_model import TokenModel, loss_of, rows
from torch import nn

import ttrace


class LowRank(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, 4, bias=False)
        self.up = nn.Linear(4, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = TokenModel().requires_grad_(False)
torch.manual_seed(5 + (rank if options.bug else 0))
for layer in model.layers:
    layer.up, layer.down = LowRank(layer.up), LowRank(layer.down)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    loss_of(model, part(rows(4 * step, 4), rank, ranks)).backward()
    if ranks > 1:
        for parameter in trained:
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks
    optimizer.step()
    optimizer.zero_grad()
end()
