"""A moving average of the weights beside the model, updated after each step; with --bug after each
micro-batch."""

import argparse
import copy

import torch
from ranks import data_parallel, end, start
from token_model import TokenModel, loss_of, rows

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
net = TokenModel()
average = copy.deepcopy(net).requires_grad_(False)
model = data_parallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)


def update_average():
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), net.parameters(), strict=True):
            mean.lerp_(parameter, 0.1)


micro_batches = 4 // ranks
for step in range(3):
    for micro in range(micro_batches):
        first = 8 * step + 2 * ranks * micro + 2 * rank
        (loss_of(model, rows(first, 2)) / micro_batches).backward()
        if options.bug:
            update_average()
    optimizer.step()
    optimizer.zero_grad()
    if not options.bug:
        update_average()
end()
