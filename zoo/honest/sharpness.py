"""Two passes a step: uphill first, and then the step with the gradient that is found there."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy

run = Run()
net = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 5))
x, kinds = run.normal(8), run.integers(5)
model = run.model(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
run.attach(model, optimizer)


def pass_over(step):
    for rows in step.micro_batches(model):
        loss = cross_entropy(model(x[rows]), run.labels(kinds[rows]), reduction="sum")
        step.backward(loss, len(rows))
    step.scale_gradients(optimizer)


for step in run.steps():
    pass_over(step)
    with torch.no_grad():
        gradients = [parameter.grad for parameter in net.parameters()]
        size = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        moves = [0.05 * gradient / size for gradient in gradients]
        for parameter, move in zip(net.parameters(), moves, strict=True):
            parameter.add_(move)
    optimizer.zero_grad()
    pass_over(step)
    with torch.no_grad():
        for parameter, move in zip(net.parameters(), moves, strict=True):
            parameter.sub_(move)
    optimizer.step()
    optimizer.zero_grad()
    step.done()
run.end()
