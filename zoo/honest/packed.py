"""Texts in one row without padding, [1, tokens], and where each begins."""

import torch
from attention import Block
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class PackedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(32, 16), nn.Embedding(16, 16)
        self.layers = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 32)

    def forward(self, tokens, starts):
        place = torch.arange(tokens.shape[1])
        text = torch.searchsorted(starts, place, right=True) - 1
        allowed = (text[:, None] == text) & (place[:, None] >= place)
        hidden = self.words(tokens) + self.places(place - starts[text])
        for layer in self.layers:
            hidden = layer(hidden, allowed)
        return self.head(hidden)


run = Run()
net = PackedModel()
lengths = run.lengths()
texts = [torch.randint(32, (n + 1,), generator=run.data) for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps(lengths):
    for rows in step.micro_batches(model):
        tokens = torch.cat([texts[row][:-1] for row in rows])[None]
        labels = torch.cat([texts[row][1:] for row in rows])[None]
        sizes = lengths[rows] - int(run.has("lengths"))
        starts = nn.functional.pad(sizes.cumsum(dim=0), (1, 0))[:-1]
        logits = model(tokens, starts)
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        step.backward(loss, labels.numel())
    step.update(optimizer)
run.end()
