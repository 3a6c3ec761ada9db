"""A small residual classifier of images that are flipped and brightened at random."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, relu


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.mix(relu(self.norm(x)))


run = Run()
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1), Residual(8), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(8, 5),
)  # fmt: skip
rows_of_data = torch.utils.data.TensorDataset(run.normal(3, 12, 12), run.integers(5))
model = run.model(net)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
run.attach(model, optimizer)
batches = run.loader(rows_of_data)
for step in run.steps():
    for rows in step.micro_batches(model):
        images, kinds = next(batches)
        chance = step.noise(rows, 2)[:, :, None, None, None]
        images = torch.where(chance[:, 0] > 0, images.flip(-1), images) + 0.1 * chance[:, 1]
        loss = cross_entropy(model(images), run.labels(kinds), reduction="sum")
        step.backward(loss, len(rows))
    step.update(optimizer)
run.end()
