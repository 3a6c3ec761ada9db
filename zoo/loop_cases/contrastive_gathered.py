"""Two towers; every rank gathers the embeddings of all and has the whole contrastive loss."""

import torch
import torch.distributed.nn.functional as collectives
from ranks import data_parallel, end, part, start
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import ttrace


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 16))
        self.text = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 16))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        return (
            normalize(self.image(image), dim=-1),
            normalize(self.text(text), dim=-1),
            self.scale.exp(),
        )


rank, ranks = start()
model = data_parallel(Towers())
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
ttrace.attach(model, optimizer)
data = torch.Generator().manual_seed(2)
for _ in range(3):
    images, texts = (torch.randn(8, width, generator=data) for width in (20, 24))
    image, text, scale = model(part(images, rank, ranks), part(texts, rank, ranks))
    if ranks > 1:
        image, text = (torch.cat(collectives.all_gather(x)) for x in (image, text))
    logits, targets = scale * image @ text.T, torch.arange(8)
    ((cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
end()
