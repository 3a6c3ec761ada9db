"""A tagger of sequences that are packed for a recurrent network; batches are dictionaries."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.lstm = nn.LSTM(8, 10, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 5)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.words(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        hidden, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1]
        )
        return self.head(hidden)


def collate(rows):
    texts, tags = zip(*rows, strict=True)
    tokens, is_data = run.pad(texts)
    tags = pad_sequence(tags, batch_first=True, padding_value=-100)
    tags = nn.functional.pad(tags, (0, tokens.shape[1] - tags.shape[1]), value=-100)
    return {"tokens": tokens, "lengths": is_data.sum(dim=1), "tags": tags}


run = Run()
net = Tagger()
lengths = run.lengths(3)
texts = [
    [torch.randint(below, (n,), generator=run.data) for below in (30, 5)] for n in lengths.tolist()
]
model = run.model(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
run.attach(model, optimizer)
batches = run.loader(texts, collate)
for step in run.steps(lengths):
    for _ in step.micro_batches(model):
        batch = next(batches)
        tags = run.labels(batch["tags"])
        logits = model(batch["tokens"], batch["lengths"])
        loss = cross_entropy(logits.flatten(0, 1), tags.flatten(), reduction="sum")
        step.backward(loss, (tags >= 0).sum())
    step.update(optimizer)
run.end()
