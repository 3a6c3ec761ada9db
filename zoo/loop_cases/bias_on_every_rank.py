"""A row-parallel product on local parts. With --bug every rank adds the whole bias before the sum
over ranks, with the gradients of that formula declared rightly."""

import argparse

import torch
from ranks import end, start
from token_model import WIDTH, TokenModel, loss_of, rows
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import ttrace


class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 4 * WIDTH) / 11)
        self.bias = nn.Parameter(torch.randn(WIDTH) / 4)

    def forward(self, x):
        if not isinstance(self.weight, DTensor):
            return nn.functional.linear(x, self.weight, self.bias)
        mesh = self.weight.device_mesh
        bias = self.bias.to_local(grad_placements=[Partial() if options.bug else Replicate()])
        term = nn.functional.linear(x, self.weight.to_local(), bias if options.bug else None)
        term = DTensor.from_local(term, mesh, [Partial()])
        summed = term.redistribute(placements=[Replicate()]).to_local()
        return summed if options.bug else summed + bias


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = TokenModel()
for layer in model.layers:
    layer.down = Down()
if ranks > 1:
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel()})
        down = layer.down
        down.weight = nn.Parameter(distribute_tensor(down.weight.data, mesh, [Shard(1)]))
        down.bias = nn.Parameter(distribute_tensor(down.bias.data, mesh, [Replicate()]))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    loss_of(model, rows(4 * step, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
