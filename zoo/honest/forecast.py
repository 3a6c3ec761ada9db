"""Series of numbers: a convolution over time and a recurrent layer say the next values, each of
which weighs as its row does."""

import torch
from run import Run
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(2, 8, 3)
        self.rnn, self.head = nn.LSTM(8, 12), nn.Linear(12, 4)

    def forward(self, series):
        hidden = self.mix(series).relu().permute(2, 0, 1)
        return self.head(self.rnn(hidden)[0][-1])


run = Run()
net = Forecaster()
series, weights = run.normal(2, 16).cumsum(dim=-1) / 3, run.integers(3) + 1
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps(weights):
    for rows in step.micro_batches(model):
        made = model(series[rows, :, :12])
        losses = (made - run.labels(series[rows, 0, 12:])).abs().mean(dim=1)
        step.backward((weights[rows] * losses).sum(), weights[rows].sum())
    step.update(optimizer)
run.end()
