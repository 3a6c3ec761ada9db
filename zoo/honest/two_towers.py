"""Images and texts in one space, by two towers; every rank has the loss of the whole batch."""

import torch
from run import Run
from torch import nn
from torch.nn.functional import cross_entropy, normalize


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.GELU(), nn.Flatten(), nn.Linear(64, 8))
        self.text, self.scale = nn.EmbeddingBag(40, 8), nn.Parameter(torch.tensor(1.0))

    def forward(self, images, texts):
        images, texts = normalize(self.image(images), dim=-1), normalize(self.text(texts), dim=-1)
        return images, texts, self.scale.exp()


run = Run()
net = Towers()
images, texts = run.normal(1, 9, 9), run.integers(40, 5)
model = run.model(net)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
run.attach(model, optimizer)
for step in run.steps():
    for rows in step.micro_batches(model):
        image, text, scale = model(images[rows], run.partners(texts[rows]))
        image, text = run.gather(image), run.gather(text)
        logits, targets = scale * image @ text.T, torch.arange(len(image))
        loss = cross_entropy(logits, targets) + cross_entropy(logits.T, targets)
        step.loss = step.loss + loss.detach() / 2 / run.ranks
        (loss / 2).backward()
    step.update(optimizer)
run.end()
