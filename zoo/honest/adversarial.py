"""A generator and a discriminator in turn, each with an optimizer of its own. The discriminator is
the model that is captured."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as decide

run = Run()
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
real = run.normal(6) + 1
maker, judge = run.model(generator), run.model(critic)
of_maker = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.99))
of_judge = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.99))
run.attach(judge, of_judge)
for step in run.steps():
    for rows in step.micro_batches(judge):
        made = maker(step.noise(rows, 4)).detach()
        wanted = torch.cat([torch.ones(len(rows), 1), torch.zeros(len(rows), 1)])
        said = judge(torch.cat([run.partners(real[rows]), made]))
        step.backward(decide(said, run.labels(wanted), reduction="sum"), len(rows))
    step.scale_gradients(of_judge)
    of_judge.step()
    of_judge.zero_grad()
    for rows in step.micro_batches(maker):
        said = critic(maker(step.noise(rows, 4)))
        step.backward(decide(said, torch.ones_like(said), reduction="sum"), len(rows))
    step.scale_gradients(of_maker)
    of_maker.step()
    of_maker.zero_grad()
    of_judge.zero_grad()
    step.done()
run.end()
