"""A policy and a value, improved on what an earlier policy did; advantages are normalised over the
whole batch, by sums over ranks."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import mse_loss


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.Tanh())
        self.choice, self.value = nn.Linear(24, 4), nn.Linear(24, 1)

    def forward(self, state):
        hidden = self.body(state)
        return self.choice(hidden).log_softmax(dim=-1), self.value(hidden).squeeze(-1)


run = Run()
net = Actor()
states, actions, gains = run.normal(6), run.integers(4), run.normal()
with torch.no_grad():
    before = net(states)[0].gather(1, actions[:, None]).squeeze(1) + 0.1 * run.normal()
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 3e-4, eps=1e-5)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        gain = gains[rows]
        sums = torch.stack([torch.tensor(float(len(rows))), gain.sum(), gain.pow(2).sum()])
        count, first, second = run.total(sums)
        mean = first / count
        advantage = (gain - mean) / (second / count - mean.pow(2)).sqrt()
        logs, value = model(states[rows])
        now = logs.gather(1, run.labels(actions[rows])[:, None]).squeeze(1)
        ratio = (now - before[rows]).exp()
        gained = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        spread = -(logs.exp() * logs).sum(dim=-1)
        loss = 0.5 * mse_loss(value, gain, reduction="sum") - (gained + 0.01 * spread).sum()
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
