"""Some tokens are masked, and a model that sees both sides says which they were."""

import torch
from attention import LanguageModel
from run import Run
from torch.nn.functional import cross_entropy

MASK = 0
run = Run()
net = LanguageModel(is_causal=False)
lengths = run.lengths(4)
texts = [torch.randint(1, 32, (n,), generator=run.data) for n in lengths.tolist()]
# Two places of each text, so that every text has as many terms of the loss.
masked = [torch.randperm(n, generator=run.data)[:2] for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
run.attach(model, optimizer)
for step in run.steps(torch.full((run.items,), 2)):
    for rows in step.micro_batches(model):
        inputs = [texts[row].index_fill(0, masked[row], MASK) for row in rows]
        labels = [torch.full_like(texts[row], -100) for row in rows]
        for label, row in zip(labels, rows, strict=True):
            label[masked[row]] = texts[row][masked[row]]
        tokens, is_data = run.pad(inputs)
        wanted, _ = run.pad(labels, -100)
        logits = model(tokens, is_data)
        loss = cross_entropy(logits.flatten(0, 1), run.labels(wanted).flatten(), reduction="sum")
        step.backward(loss, 2 * len(rows))
    step.update(optimizer)
run.end()
