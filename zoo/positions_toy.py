"""Plain torch, one process or DistributedDataParallel: values whose shape does not say where the
batch lies in them.

Positions are embedded once for all rows, with and without a leading dimension of one; a layer works
on rows and sequence flattened into one dimension, in place; a weight is made by a module
(`weight_norm`); the model puts out its loss, a mean over the rows of a micro-batch. Batches are
made by hand. Gradients of what is the same for all rows are terms of a sum over micro-batches and
ranks.

    python zoo/positions_toy.py
    torchrun --nproc-per-node 2 zoo/positions_toy.py --bug
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

import ttrace

VOCABULARY, LENGTH, WIDTH = 50, 12, 32


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.segments = nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 2 * WIDTH))
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(2 * WIDTH, VOCABULARY)

    def forward(
        self, words: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        place = torch.arange(words.shape[1])
        shared = self.norm(self.positions(place)) + self.segments(place[None] // 4)
        hidden = (self.words(words) + shared).view(-1, WIDTH)
        logits = self.head(self.act(self.up(hidden))).view(*words.shape, VOCABULARY)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def train(rows: int, steps: int, bug: bool) -> None:
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(0)
    model: nn.Module = Tagger()
    positions = model.positions.weight
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(
        [positions, *(p for p in model.parameters() if p is not positions)]
    )
    ttrace.attach(model, optimizer)
    own: list[torch.Tensor] = []  # what this rank's rows give the positions
    if bug:
        positions.register_hook(own.append)
    words = torch.randint(VOCABULARY, (64, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    for step in range(steps):
        batch = words[step * rows : (step + 1) * rows]
        mine = batch[rank * rows // ranks : (rank + 1) * rows // ranks]
        for part in mine.chunk(2):
            loss, _ = model(part[:, :-1], part[:, 1:])
            (loss / 2).backward()
        if bug:
            positions.grad.copy_(torch.stack(own).sum(0))
            own.clear()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4, help="of the global batch")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--bug", action="store_true", help="positions are not averaged over ranks")
    options = parser.parse_args()
    train(options.rows, options.steps, options.bug)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
