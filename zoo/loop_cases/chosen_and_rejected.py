"""Preference pairs: chosen and rejected rows go through the model, and through a frozen copy of it,
in one batch. Layers are checkpointed."""

import copy

import torch
from ranks import end, part, start
from token_model import LENGTH, VOCABULARY, TokenModel
from torch import nn
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

import ttrace


class Checkpointed(TokenModel):
    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden, use_reentrant=False)
        return self.head(self.norm(hidden))


def log_probability(model, tokens):
    logs = model(tokens)[:, :-1].log_softmax(dim=-1)
    return logs.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(dim=-1)


rank, ranks = start()
net = Checkpointed()
before = copy.deepcopy(net).requires_grad_(False).eval()
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(1)
for _ in range(3):
    drawn = [torch.randint(VOCABULARY, (8, LENGTH), generator=data) for _ in range(2)]
    batch = torch.cat([part(rows, rank, ranks) for rows in drawn])
    with torch.no_grad():
        base = log_probability(before, batch)
    chosen, rejected = (log_probability(model, batch) - base).chunk(2)
    (-logsigmoid(0.1 * (chosen - rejected))).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
end()
