"""Detection: a list of images, a list of dictionaries of targets, a dictionary of losses that are
divided by the boxes of all ranks."""

import torch
from ranks import data_parallel, dealt, end, start, total
from torch import nn
from torch.nn.functional import cross_entropy, l1_loss

import ttrace


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1)
        )
        self.queries = nn.Embedding(4, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kind, self.box = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, images, targets):
        features = self.backbone(torch.stack(images)).flatten(2).transpose(1, 2)
        queries = self.queries.weight.expand(len(images), -1, -1)
        found, _ = self.attention(queries, features, features)
        kinds, boxes = self.kind(found), self.box(found).sigmoid()
        count = total(torch.tensor(sum(len(target["labels"]) for target in targets))) / ranks
        kind_loss = box_loss = 0
        for row, target in enumerate(targets):
            n = len(target["labels"])
            kind_loss += cross_entropy(kinds[row, :n], target["labels"], reduction="sum") / count
            box_loss += l1_loss(boxes[row, :n], target["boxes"], reduction="sum") / count
        return {"kind": kind_loss, "box": box_loss}


def drawn(random):
    targets = {
        "labels": torch.randint(4, (3,), generator=random),
        "boxes": torch.rand(3, 4, generator=random),
    }
    return torch.randn(3, 16, 16, generator=random), targets


rank, ranks = start()
net = Detector()
model = data_parallel(net)
others = [p for name, p in net.named_parameters() if "backbone" not in name]
slow = {"params": net.backbone.parameters(), "lr": 1e-4}
optimizer = torch.optim.AdamW([{"params": others}, slow], lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=8)
ttrace.attach(model, optimizer)
random = torch.Generator().manual_seed(5)
data = [drawn(random) for _ in range(12)]
for images, targets in dealt(data, 4, rank, ranks, collate_fn=lambda rows: zip(*rows, strict=True)):
    losses = model(list(images), [dict(target) for target in targets])
    (losses["kind"] + 5 * losses["box"]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
end()
