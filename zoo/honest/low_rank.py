"""A frozen language model with small additions that are trained."""

import torch
from attention import LanguageModel, next_token_losses
from run import Run
from torch import nn


class LowRank(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, 2, bias=False)
        self.up = nn.Linear(2, linear.out_features, bias=False)

    def forward(self, x):
        return self.linear(x) + 2 * self.up(self.down(x))


run = Run()
net = LanguageModel().requires_grad_(False)
for layer in net.layers:
    layer.qkv, layer.up = LowRank(layer.qkv), LowRank(layer.up)
    for linear in (layer.qkv, layer.up):
        linear.linear.requires_grad_(False)
lengths = run.lengths()
texts = [torch.randint(32, (n,), generator=run.data) for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
run.attach(model, optimizer)
batches = run.loader(texts, run.pad)
for step in run.steps(lengths - 1):
    for _ in step.micro_batches(model):
        tokens, is_data = next(batches)
        losses = next_token_losses(model(tokens, is_data), run.labels(tokens), is_data)
        step.backward(losses.sum(), (is_data[:, 1:] & is_data[:, :-1]).sum())
    step.update(optimizer)
run.end()
