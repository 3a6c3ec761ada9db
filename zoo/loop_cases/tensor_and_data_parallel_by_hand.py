"""Tensor parallelism on one dimension of a device mesh, and on the other gradients that the loop
averages by itself. Each block is cut on a mesh of its own, made anew of the same ranks.

With --bug the gradients of the last layer's `down.weight` are left out of the average.
"""

import argparse

import torch
import torch.distributed as dist
from ranks import end, start
from token_model import TokenModel, loss_of, rows
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = TokenModel()
copies, copy, group = 1, 0, None
if ranks > 1:
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("replicas", "tp"))
    copies, copy, group = mesh.size(0), mesh.get_local_rank(0), mesh.get_group("replicas")
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model.layers[0], mesh["tp"], plan)
    again = DeviceMesh("cpu", mesh["tp"].mesh.clone(), mesh_dim_names=("model",))
    parallelize_module(model.layers[1], again, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    batch = rows(8 * step, 8).chunk(copies)[copy]
    loss_of(model, batch).backward()
    for name, parameter in model.named_parameters():
        if copies == 1 or (options.bug and name == "layers.1.down.weight"):
            continue
        gradient = parameter.grad
        gradient = gradient.to_local() if hasattr(gradient, "to_local") else gradient
        dist.all_reduce(gradient, group=group)
        gradient /= copies
    optimizer.step()
    optimizer.zero_grad()
end()
