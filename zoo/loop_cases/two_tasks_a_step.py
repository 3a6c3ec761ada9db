"""Two tasks in each step: both forwards and then both backwards, or with --in-turn a forward and a
backward of one, then of the other."""

import argparse

import torch
from ranks import data_parallel, end, part, start
from token_model import TokenModel, loss_of, rows

import ttrace

parser = argparse.ArgumentParser()
parser.add_argument("--in-turn", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(TokenModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    first, second = (part(rows(16 * step + 8 * task, 4), rank, ranks) for task in range(2))
    if options.in_turn:
        loss_of(model, first).backward()
        loss_of(model, second).backward()
    else:
        losses = loss_of(model, first), loss_of(model, second)
        for loss in losses:
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
end()
