"""The toy of pytorch/examples, distributed/ddp: random inputs and labels, made by hand.

python zoo/loops/pytorch_ddp.py --rows 20
torchrun --nproc-per-node 2 zoo/loops/pytorch_ddp.py --rows 10
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import ttrace


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=20)
options = parser.parse_args()

model = ToyModel()
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = DDP(model)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
ttrace.attach(model, optimizer)
for step in range(3):
    optimizer.zero_grad()
    outputs = model(torch.randn(options.rows, 10))
    labels = torch.randn(options.rows, 5)
    loss = loss_fn(outputs, labels)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
if dist.is_initialized():
    dist.destroy_process_group()
