"""A language model whose layers are computed again in the backward."""

import torch
from attention import LanguageModel, next_token_losses
from run import Run
from torch import nn
from torch.utils.checkpoint import checkpoint


class Again(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        return checkpoint(self.layer, *inputs, use_reentrant=False)


run = Run()
net = LanguageModel()
net.layers = nn.ModuleList(Again(layer) for layer in net.layers)
lengths = run.lengths()
texts = [torch.randint(32, (n,), generator=run.data) for n in lengths.tolist()]
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps(lengths - 1):
    for rows in step.micro_batches(model):
        tokens, is_data = run.pad([texts[row] for row in rows])
        losses = next_token_losses(model(tokens, is_data), run.labels(tokens), is_data)
        step.backward(losses.sum(), (is_data[:, 1:] & is_data[:, :-1]).sum())
    step.update(optimizer)
run.end()
