"""The toy of pytorch/examples, distributed/tensor_parallelism: a pair of linears cut over ranks,
whose input is this rank's part of the batch (sequence parallel), or whole (tensor parallel).

    torchrun --nproc-per-node 2 zoo/loops/pytorch_sequence_parallel.py
    torchrun --nproc-per-node 4 zoo/loops/pytorch_sequence_parallel.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import ttrace


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


parser = argparse.ArgumentParser()
parser.add_argument("--whole", action="store_true", help="all ranks have the whole batch")
options = parser.parse_args()

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
torch.manual_seed(0)
layout = Replicate() if options.whole else Shard(0)
plan = {
    "in_proj": ColwiseParallel(input_layouts=layout),
    "out_proj": RowwiseParallel(output_layouts=layout),
}
model = parallelize_module(ToyModel(), mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
ttrace.attach(model, optimizer)
for step in range(3):
    batch = torch.rand(40, 10)
    mine = batch if options.whole else batch.chunk(size)[rank]
    output = model(mine)
    output.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} sum {output.sum().item():.6f}", flush=True)
dist.destroy_process_group()
