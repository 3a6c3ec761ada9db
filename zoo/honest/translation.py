"""An encoder and a decoder that are recurrent, in torch's old layout: time before rows."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(24, 12)
        self.encoder, self.decoder = nn.GRUCell(12, 16), nn.GRU(12, 16)
        self.head = nn.Linear(16, 24)

    def forward(self, source, is_source, target):
        state = torch.zeros(source.shape[1], 16, dtype=self.words.weight.dtype)
        for tokens, is_data in zip(source, is_source, strict=True):
            state = torch.where(is_data[:, None], self.encoder(self.words(tokens), state), state)
        return self.head(self.decoder(self.words(target), state[None])[0])


run = Run()
net = Translator()
lengths = run.lengths()
sources = [torch.randint(24, (n,), generator=run.data) for n in lengths.tolist()]
targets = run.integers(24, 6)
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
run.attach(model, optimizer)
for step in run.steps(torch.full((run.items,), 5)):
    for rows in step.micro_batches(model):
        source, is_source = run.pad([sources[row] for row in rows])
        target = run.labels(targets[rows]).T
        logits = model(source.T, is_source.T, target[:-1])
        loss = cross_entropy(logits.flatten(0, 1), target[1:].flatten(), reduction="sum")
        step.backward(loss, target[1:].numel())
    step.update(optimizer)
run.end()
