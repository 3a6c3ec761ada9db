"""With --bug the optimizer is not given a bias of the model, which has a gradient all the same."""

import argparse

import torch
from ranks import data_parallel, end, part, start
from token_model import TokenModel, loss_of, rows

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = TokenModel()
left_out = {id(model.layers[1].up.bias)} if options.bug else set()
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if id(p) not in left_out], lr=0.1, momentum=0.9
)
ttrace.attach(model, optimizer)
model = data_parallel(model)
for step in range(3):
    loss_of(model, part(rows(8 * step, 8), rank, ranks)).backward()
    optimizer.step()
    model.zero_grad()
end()
