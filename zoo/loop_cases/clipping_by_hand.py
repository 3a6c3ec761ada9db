"""Tensor parallelism and a norm for clipping that the loop sums up by itself. With --bug parameters
that are whole on every rank count once for each."""

import argparse

import torch
import torch.distributed as dist
from ranks import end, start
from token_model import TokenModel, loss_of, rows
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import ttrace


def clip(parameters, limit):
    cut, whole = torch.zeros(()), torch.zeros(())
    for gradient in (p.grad for p in parameters):
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        if options.bug or (isinstance(gradient, DTensor) and gradient.placements[0].is_shard()):
            cut += local.pow(2).sum()
        else:
            whole += local.pow(2).sum()
    if ranks > 1:
        dist.all_reduce(cut)
    for parameter in parameters:
        parameter.grad.mul_((limit / (cut + whole).sqrt()).clamp(max=1.0))


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = TokenModel()
if ranks > 1:
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    loss_of(model, rows(4 * step, 4)).backward()
    clip(list(model.parameters()), 0.3)
    optimizer.step()
    optimizer.zero_grad()
end()
