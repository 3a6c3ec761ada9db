"""Texts are longer in each step than in the one before."""

import torch
from attention import LanguageModel, next_token_losses
from run import Run

run = Run()
net = LanguageModel(layers=1)
starts = [number for number, size in enumerate(run.sizes) for _ in range(size)]
lengths = torch.clamp(run.lengths(3, 6) + 2 * torch.tensor(starts), max=10)
texts = [torch.randint(32, (n,), generator=run.data) for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.RAdam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 3)
run.attach(model, optimizer)
for step in run.steps(lengths - 1):
    for rows in step.micro_batches(model):
        tokens, is_data = run.pad([texts[row] for row in rows])
        losses = next_token_losses(model(tokens, is_data), run.labels(tokens), is_data)
        step.backward(losses.sum(), (is_data[:, 1:] & is_data[:, :-1]).sum())
    step.update(optimizer)
    schedule.step()
run.end()
