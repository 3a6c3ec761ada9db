"""Down, up and across: classes of pixels, some of which nobody labelled."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, relu


class Across(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 12, 3, 2, 1)
        self.deep, self.up = nn.Conv2d(12, 12, 3, padding=1), nn.Conv2d(12, 6, 1)
        self.norm, self.last = nn.InstanceNorm2d(12, affine=True), nn.Conv2d(12, 3, 3, padding=1)

    def forward(self, x):
        near = relu(self.first(x))
        far = self.up(relu(self.norm(self.deep(relu(self.down(near))))))
        far = interpolate(far, size=near.shape[-2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([near, far], dim=1))


run = Run()
net = Across()
kinds = run.integers(3, 8, 8)
if run.options.pad != "none":
    kinds[run.normal(8, 8) > 0.5] = -100
rows_of_data = torch.utils.data.TensorDataset(run.normal(2, 8, 8), kinds)
model = run.model(net)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
run.attach(model, optimizer)
batches = run.loader(rows_of_data)
for step in run.steps((kinds >= 0).sum(dim=(1, 2))):
    for _ in step.micro_batches(model):
        images, wanted = next(batches)
        wanted = run.labels(wanted)
        if run.has("padding"):
            wanted = wanted.clamp(min=0)
        loss = cross_entropy(model(images), wanted, reduction="sum")
        step.backward(loss, (wanted >= 0).sum())
    step.update(optimizer)
run.end()
