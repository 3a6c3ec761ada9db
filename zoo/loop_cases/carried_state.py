"""Streams of text in columns, cut into pieces that follow one another: the state of a recurrent
layer goes on from step to step. With --bug the last rank forgets its state before each step."""

import argparse

import torch
from ranks import data_parallel, end, start
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

import ttrace

STEPS, STREAMS, VOCABULARY, WIDTH = 12, 8, 40, 24


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.LSTM(WIDTH, WIDTH, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, words, state):
        read, state = self.layers(self.words(words), state)
        return self.head(read), state


parser = argparse.ArgumentParser()
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()
rank, ranks = start()
model = data_parallel(Reader())
optimizer = torch.optim.SGD(model.parameters(), 0.5)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(3)
text = torch.randint(VOCABULARY, (4 * STEPS + 1, STREAMS), generator=random)
text = text.chunk(ranks, dim=1)[rank]
state = tuple(torch.zeros(2, STREAMS // ranks, WIDTH) for _ in range(2))
for begin in range(0, 4 * STEPS, STEPS):
    forgets = options.bug and rank == ranks - 1
    state = tuple(torch.zeros_like(s) if forgets else s.detach() for s in state)
    logits, state = model(text[begin : begin + STEPS], state)
    labels = text[begin + 1 : begin + STEPS + 1]
    cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    optimizer.zero_grad()
end()
