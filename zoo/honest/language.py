"""A language model of tokens, next token by next token."""

import torch
from attention import LanguageModel, next_token_losses
from run import Run

run = Run()
net = LanguageModel()
lengths = run.lengths()
texts = [torch.randint(32, (n,), generator=run.data) for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(texts, run.pad)
for step in run.steps(lengths - 1):
    for _ in step.micro_batches(model):
        tokens, is_data = next(batches)
        losses = next_token_losses(model(tokens, is_data), run.labels(tokens), is_data)
        step.backward(losses.sum(), (is_data[:, 1:] & is_data[:, :-1]).sum())
    step.scale_gradients(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    step.done()
run.end()
