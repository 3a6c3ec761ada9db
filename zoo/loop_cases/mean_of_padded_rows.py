"""Rows of several lengths whose words are averaged; the candidate pads all to one length. With
--bug the average is over padding, too."""

import sys

import torch
from ranks import data_parallel, dealt, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence

import ttrace

LONGEST = 12
BUG = "--bug" in sys.argv


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(30, 8), nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, tokens, is_data):
        counts = torch.ones_like(is_data) if BUG else is_data
        hidden = self.inner(self.words(tokens)).tanh() * counts[..., None]
        return self.head(hidden.sum(dim=1) / counts.sum(dim=1, keepdim=True))


def padded(rows):
    tokens, kinds = zip(*rows, strict=True)
    lengths = torch.tensor([len(row) for row in tokens])
    tokens = pad_sequence(tokens, batch_first=True)
    if ranks > 1:
        tokens = pad(tokens, (0, LONGEST - tokens.shape[1]))
    is_data = torch.arange(tokens.shape[1]) < lengths[:, None]
    return tokens, is_data.float(), torch.tensor(kinds)


rank, ranks = start()
model = data_parallel(Classifier())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(3)
data = [(torch.randint(1, 30, (2 + 5 * i % 8,), generator=random), i % 5) for i in range(24)]
for tokens, is_data, kinds in dealt(data, 8, rank, ranks, collate_fn=padded):
    loss = cross_entropy(model(tokens, is_data), kinds, reduction="sum")
    (loss * ranks / total(torch.tensor(len(kinds)))).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
