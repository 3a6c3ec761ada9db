"""A block is compiled: its graphs are taken and run as they are, without making machine code."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy

run = Run()
block = nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.Linear(40, 20))
net = nn.Sequential(nn.Linear(10, 20), block, nn.LayerNorm(20), nn.Linear(20, 5))
net[1] = torch.compile(block, backend="aot_eager")
x, kinds = run.normal(10), run.integers(5)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        loss = cross_entropy(model(x[rows]), run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
