"""A model of transformers in a plain torch loop, under DistributedDataParallel.

python zoo/loops/transformers_plain.py --accumulate 4
torchrun --nproc-per-node 2 zoo/loops/transformers_plain.py --accumulate 2
"""

import argparse
import os

import tiny_llama
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
options = parser.parse_args()

model = tiny_llama.model()
sampler = None
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
    sampler = DistributedSampler(tiny_llama.Text(), shuffle=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
items = iter(DataLoader(tiny_llama.Text(), batch_size=2, sampler=sampler))
for step in range(3):
    for _ in range(options.accumulate):
        loss = model(**next(items)).loss / options.accumulate
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
if dist.is_initialized():
    dist.destroy_process_group()
