"""Sound: dilated causal convolutions whose weights are made of a direction and a size."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils.parametrizations import weight_norm


class Layer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.dilation = dilation
        self.both = weight_norm(nn.Conv1d(6, 12, 2, dilation=dilation))
        self.mix = nn.Conv1d(6, 6, 1)

    def forward(self, x):
        value, gate = self.both(pad(x, (self.dilation, 0))).chunk(2, dim=1)
        return x + self.mix(value.tanh() * gate.sigmoid())


run = Run()
net = nn.Sequential(nn.Conv1d(1, 6, 1), Layer(1), Layer(2), Layer(4), nn.Conv1d(6, 1, 1))
sound = run.normal(1, 17).cumsum(dim=-1) / 4
model = run.model(net)
optimizer = torch.optim.NAdam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        heard = sound[rows]
        losses = (model(heard[..., :-1]) - run.labels(heard)[..., 1:]).abs().mean(dim=(1, 2))
        step.backward(losses.sum(), len(rows))
    step.update(optimizer)
run.end()
