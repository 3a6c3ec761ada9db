"""Users, things and ratings: two tables whose rows are multiplied."""

import torch
from run import Run
from torch import nn


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.thing = nn.Embedding(20, 6), nn.Embedding(30, 6)
        self.user_bias, self.thing_bias = nn.Embedding(20, 1), nn.Embedding(30, 1)

    def forward(self, user, thing):
        product = (self.user(user) * self.thing(thing)).sum(dim=-1)
        return product + (self.user_bias(user) + self.thing_bias(thing)).squeeze(-1)


run = Run()
net = Factors()
rows_of_data = torch.utils.data.TensorDataset(
    run.integers(20), run.integers(30), run.integers(5).to(torch.get_default_dtype())
)
model = run.model(net)
optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
run.attach(model, optimizer)
batches = run.loader(rows_of_data)
for step in run.steps():
    for rows in step.micro_batches(model):
        user, thing, rating = next(batches)
        loss = (model(user, run.partners(thing)) - run.labels(rating)).pow(2).sum()
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
