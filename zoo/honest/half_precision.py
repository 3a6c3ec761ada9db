"""Forward in bf16 by autocast, and a scaler of the loss."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy

run = Run()
net = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 6))
x, kinds = run.normal(16), run.integers(6)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype == torch.float32):
            logits = model(x[rows])
        logits = logits.to(x.dtype)
        loss = cross_entropy(logits, run.labels(kinds[rows]), reduction="sum")
        scaler.scale(step.scaled(loss, len(rows))).backward()
    step.scale_gradients(optimizer)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    step.done()
run.end()
