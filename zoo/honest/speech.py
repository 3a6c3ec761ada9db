"""Speech without alignment: frames and letters, each with lengths."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import ctc_loss


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.hear = nn.Sequential(nn.Conv1d(6, 12, 1), nn.ReLU())
        self.rnn, self.head = nn.GRU(12, 16, batch_first=True), nn.Linear(16, 7)

    def forward(self, frames):
        hidden, _ = self.rnn(self.hear(frames.transpose(1, 2)).transpose(1, 2))
        return self.head(hidden).log_softmax(dim=-1)


run = Run()
net = Listener()
lengths = run.lengths(8)
frames = [torch.randn(n, 6, generator=run.data) for n in lengths.tolist()]
letters = run.integers(6, 3) + 1
model = run.model(net)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(frames, run.pad)
for step in run.steps():
    for rows in step.micro_batches(model):
        heard, is_data = next(batches)
        loss = ctc_loss(
            model(heard).transpose(0, 1),
            run.labels(letters[rows]),
            is_data.sum(dim=1),
            torch.full((len(rows),), 3),
            reduction="sum",
        )
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
