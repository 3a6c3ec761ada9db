"""torchao's float8 under DDP: each rank scales by the largest value of its own rows."""

import torch
from ranks import data_parallel, end, part, start
from token_model import TokenModel, rows
from torch.nn.functional import cross_entropy
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

import ttrace

rank, ranks = start()
net = TokenModel().bfloat16()
convert_to_float8_training(
    net,
    config=Float8LinearConfig(emulate=True),
    module_filter_fn=lambda _, name: "head" not in name,
)
model = data_parallel(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    batch = part(rows(8 * step, 8), rank, ranks)
    logits = model(batch[:, :-1]).float()
    cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
