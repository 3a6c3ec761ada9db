"""The loss is a mean over all tokens of the global batch, in one of two ways. `hook`: losses are
divided by the count of all ranks, and a communication hook sums gradients. `after`: losses are
sums, DDP averages, and the loop multiplies gradients by ranks / count. With --bug that count is of
the rank alone."""

import argparse

import torch
import torch.distributed as dist
from ranks import data_parallel, dealt, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy

import ttrace


def summing_hook(_, bucket):
    done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return done.then(lambda future: future.value()[0])


parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("hook", "after"))
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(
    nn.Sequential(
        nn.Embedding(20, 16), nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 20)
    )
)
if ranks > 1 and options.how == "hook":
    model.register_comm_hook(None, summing_hook)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(1)
tokens = torch.randint(20, (24, 9), generator=random)
labels = tokens[:, 1:].masked_fill(torch.rand(24, 8, generator=random) < 0.3, -100)
rows = torch.utils.data.TensorDataset(tokens[:, :-1].contiguous(), labels)
for x, y in dealt(rows, 8, rank, ranks):
    count = (y >= 0).sum()
    if not options.bug:
        count = total(count)
    loss = cross_entropy(model(x).transpose(1, 2), y, reduction="sum")
    (loss / count if options.how == "hook" else loss).backward()
    if options.how == "after":
        for parameter in model.parameters():
            parameter.grad.mul_(ranks / count)
    nn.utils.clip_grad_norm_(model.parameters(), 20.0)
    optimizer.step()
    optimizer.zero_grad()
end()
