"""One body and three heads, whose losses are of different kinds and weigh what they learn to."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 24), nn.Mish(), nn.Linear(24, 24), nn.Mish())
        self.kind, self.size, self.flags = nn.Linear(24, 4), nn.Linear(24, 1), nn.Linear(24, 3)
        self.weights = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        hidden = self.body(x)
        return self.kind(hidden), self.size(hidden), self.flags(hidden), self.weights


run = Run()
net = Tasks()
data = {
    "x": run.normal(9),
    "kind": run.integers(4),
    "size": run.normal(1),
    "flags": run.integers(2, 3).to(torch.get_default_dtype()),
}
rows_of_data = [{name: values[row] for name, values in data.items()} for row in range(run.items)]
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(rows_of_data)
for step in run.steps():
    for rows in step.micro_batches(model):
        batch = next(batches)
        kind, size, flags, weights = model(batch["x"])
        losses = torch.stack([
            cross_entropy(kind, run.labels(batch["kind"]), reduction="sum"),
            mse_loss(size, run.partners(batch["size"]), reduction="sum"),
            binary_cross_entropy_with_logits(flags, batch["flags"], reduction="sum"),
        ])  # fmt: skip
        step.backward(((-weights).exp() * losses + len(rows) * weights).sum(), len(rows))
    step.update(optimizer)
run.end()
