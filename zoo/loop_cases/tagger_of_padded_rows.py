"""A recurrent tagger of sequences that each rank pads to its own longest one; batches are
dictionaries, and ranks draw other dropout masks. `--bug same`: each rank reads all rows from the
first on, as without a sampler. `--bug mean`: each divides by the number of its own tokens."""

import argparse

import torch
from ranks import data_parallel, dealt, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import ttrace


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.drop = nn.Embedding(30, 8, padding_idx=0), nn.Dropout(0.2)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, 5)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.drop(self.words(tokens)), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(hidden)


def drawn(random):
    length = int(torch.randint(2, 9, (), generator=random))
    return (
        torch.randint(1, 30, (length,), generator=random),
        torch.randint(5, (length,), generator=random),
    )


def padded(rows):
    tokens, tags = zip(*rows, strict=True)
    return {
        "tokens": pad_sequence(tokens, batch_first=True),
        "lengths": torch.tensor([len(row) for row in tokens]),
        "tags": pad_sequence(tags, batch_first=True, padding_value=-100),
    }


parser = argparse.ArgumentParser()
parser.add_argument("--bug", choices=("same", "mean"))
bug = parser.parse_args().bug
rank, ranks = start()
model = data_parallel(Tagger())
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
torch.manual_seed(1234 + rank)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(3)
data = [drawn(random) for _ in range(24)]
share = (0, 1) if bug == "same" else (rank, ranks)
for batch in dealt(data, 8 * share[1] // ranks, *share, collate_fn=padded):
    logits = model(batch["tokens"], batch["lengths"])
    own = (batch["tags"] >= 0).sum()
    count = own * ranks if bug == "mean" else total(own)
    loss = cross_entropy(logits.transpose(1, 2), batch["tags"], reduction="sum")
    (loss * ranks / count).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()
    optimizer.zero_grad()
end()
