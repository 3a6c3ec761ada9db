"""Documents are packed into one row, [1, tokens]; a mask keeps them apart. With --rolled the labels
are the tokens moved by one, and what crosses from one document, or rank, to the next is masked.
"""

import argparse

import torch
from ranks import data_parallel, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import ttrace

VOCABULARY, LENGTH = 32, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(VOCABULARY, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens, document):
        hidden = self.words(tokens)
        parts = self.qkv(self.norm(hidden)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        seen = (document[:, :, None] == document[:, None]).tril()
        mixed = scaled_dot_product_attention(*parts, attn_mask=seen[:, None])
        return self.head(hidden + self.out(mixed.transpose(1, 2).flatten(2)))


parser = argparse.ArgumentParser()
parser.add_argument("--rolled", action="store_true")
rolled = parser.parse_args().rolled

rank, ranks = start()
model = data_parallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.randint(VOCABULARY, (3, 8, LENGTH), generator=torch.Generator().manual_seed(1))
for documents in data:
    mine = documents.chunk(ranks)[rank]
    tokens = mine.reshape(1, -1)
    document = torch.arange(len(mine)).repeat_interleave(LENGTH)[None]
    inside = torch.arange(LENGTH).lt(LENGTH - 1).repeat(len(mine))[None]
    count = total(inside.sum())
    scores = model(tokens, document).transpose(1, 2)
    if rolled:
        losses = cross_entropy(scores, tokens.roll(-1, 1), reduction="none")
        loss = losses.masked_fill(~inside, 0).sum()
    else:
        labels = nn.functional.pad(mine[:, 1:], (0, 1), value=-100).reshape(1, -1)
        loss = cross_entropy(scores, labels, reduction="sum")
    (loss * ranks / count).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
