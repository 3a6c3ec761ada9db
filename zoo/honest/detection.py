"""Lists of images and of dictionaries of boxes; the loss is divided by the boxes of all ranks."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, l1_loss


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2))
        self.kind, self.box = nn.Linear(72, 4 * 5), nn.Linear(72, 4 * 4)

    def forward(self, images, targets):
        hidden = self.body(torch.stack(images)).flatten(1).relu()
        kinds, boxes = self.kind(hidden).unflatten(1, (4, 5)), self.box(hidden).unflatten(1, (4, 4))
        losses = {"kind": 0, "box": 0}
        for kind, box, target in zip(kinds, boxes, targets, strict=True):
            n = len(target["labels"])
            losses["kind"] += cross_entropy(kind[:n], target["labels"], reduction="sum")
            losses["box"] += l1_loss(box[:n].sigmoid(), target["boxes"], reduction="sum")
        return losses


run = Run()
net = Detector()
counts = run.lengths(1, 4)
targets = [
    {"labels": torch.randint(5, (n,), generator=run.data),
     "boxes": torch.rand(n, 4, generator=run.data)}
    for n in counts.tolist()
]  # fmt: skip
data = list(zip(run.normal(3, 15, 15), targets, strict=True))
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
batches = run.loader(data, lambda rows: zip(*rows, strict=True))
for step in run.steps(counts):
    for rows in step.micro_batches(model):
        images, boxes = next(batches)
        boxes = [*boxes[1:], boxes[0]] if run.has("labels") else list(boxes)
        losses = model(list(images), boxes)
        step.backward(losses["kind"] + 2 * losses["box"], counts[rows].sum())
    step.update(optimizer)
run.end()
