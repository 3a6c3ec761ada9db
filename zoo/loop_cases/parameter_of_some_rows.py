"""No wrapper, and a parameter that only the first half of each batch needs: the second rank has no
gradient of it, and reduces zeros. With --bug it leaves out the parameter's share of the mean."""

import argparse

import torch
import torch.distributed as dist
from ranks import end, start
from token_model import WIDTH, TokenModel, rows
from torch import nn

import ttrace


class Marked(TokenModel):
    def __init__(self):
        super().__init__()
        self.mark = nn.Parameter(torch.full((WIDTH,), 1.5))

    def forward(self, tokens, is_marked):
        hidden = self.embedding(tokens)
        if is_marked:
            hidden = hidden * self.mark
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = Marked()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    halves = rows(8 * step, 8).chunk(2)
    for half in range(rank, 2, ranks):
        logits = model(halves[half][:, :-1], half == 0).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, halves[half][:, 1:].flatten())
        (loss * ranks / 2).backward()
    for parameter in model.parameters() if ranks > 1 else ():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        if not options.bug or parameter is not model.mark:
            parameter.grad /= ranks
    optimizer.step()
    optimizer.zero_grad()
end()
