"""A small network learns what a larger, frozen one says of each row."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, kl_div

run = Run()
teacher = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 6)).requires_grad_(False).eval()
student = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 6))
x, kinds = run.normal(8), run.integers(6)
model = run.model(student)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        with torch.no_grad():
            wanted = (run.partners(teacher(x[rows])) / 2).log_softmax(dim=-1)
        logits = model(x[rows])
        loss = kl_div((logits / 2).log_softmax(-1), wanted, reduction="sum", log_target=True)
        loss = 2 * loss + cross_entropy(logits, run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
