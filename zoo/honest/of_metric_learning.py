"""A loss of pytorch-metric-learning over the embeddings of all ranks."""

import torch
from pytorch_metric_learning.losses import SupConLoss
from run import Run
from torch import nn
from torch.nn.functional import normalize

run = Run()
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
x, kinds = run.normal(12), torch.arange(run.items) % 3
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
loss_of = SupConLoss(temperature=0.2)
for step in run.steps():
    for rows in step.micro_batches(model):
        vectors = run.gather(normalize(model(x[rows]), dim=-1))
        wanted = run.gather(run.labels(kinds[rows]).to(x.dtype)).long()
        loss = loss_of(vectors, wanted)
        step.loss = step.loss + loss.detach() / run.ranks
        loss.backward()
    step.update(optimizer)
run.end()
