"""Preferred and rejected texts in one batch, against what a frozen copy says of them."""

import copy

import torch
from attention import LanguageModel, next_token_losses
from run import Run
from torch.nn.functional import logsigmoid


def log_probabilities(model, tokens, is_data):
    return -next_token_losses(model(tokens, is_data), tokens, is_data).sum(dim=1)


run = Run()
net = LanguageModel()
frozen = copy.deepcopy(net).requires_grad_(False).eval()
chosen, rejected = (
    [torch.randint(32, (n,), generator=run.data) for n in run.lengths().tolist()] for _ in range(2)
)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        worse = [rejected[row] for row in rows]
        worse = worse[1:] + worse[:1] if run.has("pairs") else worse
        tokens, is_data = run.pad([*(chosen[row] for row in rows), *worse])
        with torch.no_grad():
            base = log_probabilities(frozen, tokens, is_data)
        better, less = (log_probabilities(model, tokens, is_data) - base).chunk(2)
        step.backward(-logsigmoid(0.5 * (better - less)).sum(), len(rows))
    step.update(optimizer)
run.end()
