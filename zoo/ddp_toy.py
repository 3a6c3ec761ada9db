"""A plain torch classifier under DistributedDataParallel, or in one process.

What a script of this kind does and Megatron does not: labels never enter the model, the loss is a
module of the loop, every rank draws its data from a seed of its own, gradients are accumulated
under `no_sync`, and the optimizer is torch's.

    python zoo/ddp_toy.py
    torchrun --nproc-per-node 2 zoo/ddp_toy.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

import ttrace

VOCABULARY, LENGTH, CLASSES = 64, 12, 8


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(self.act(self.up(self.norm(hidden))))


class Classifier(nn.Module):
    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.embedding(tokens))
        return self.head(self.norm(hidden).mean(dim=1))


class Parity(torch.utils.data.Dataset):
    """Random tokens; the class is their sum modulo the number of classes."""

    def __init__(self, seed: int, size: int = 256) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCABULARY, (size, LENGTH), generator=generator)
        self.labels = self.tokens.sum(dim=1) % CLASSES

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.tokens[index], self.labels[index]


def endless(loader: torch.utils.data.DataLoader) -> Iterator[list[torch.Tensor]]:
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()

    distributed = "RANK" in os.environ
    if distributed:
        dist.init_process_group("gloo")
    rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    accumulate = args.global_batch // (args.micro_batch * size)
    if accumulate * args.micro_batch * size != args.global_batch:
        parser.error(f"--global-batch {args.global_batch} cannot be divided among {size} ranks")

    torch.manual_seed(args.seed)
    model: nn.Module = Classifier()
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    ttrace.attach(model, optimizer)

    data = endless(
        torch.utils.data.DataLoader(
            Parity(args.seed + rank),
            batch_size=args.micro_batch,
            shuffle=True,
            generator=torch.Generator().manual_seed(args.seed + rank),
        )
    )
    criterion = nn.CrossEntropyLoss()

    for step in range(args.steps):
        total = torch.zeros(())
        for micro in range(accumulate):
            tokens, labels = next(data)
            last = micro == accumulate - 1
            quiet = model.no_sync() if distributed and not last else contextlib.nullcontext()
            with quiet:
                loss = criterion(model(tokens), labels) / accumulate
                loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if distributed:
            dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {total.item() / size:.9g} grad_norm {norm:.9g}", flush=True)

    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
