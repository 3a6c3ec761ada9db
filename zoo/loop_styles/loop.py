"""The model of the styles, and the plain loop, of which they change a part."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import ttrace

VOCABULARY, WIDTH, LENGTH, ROWS, STEPS = 48, 16, 6, 8, 12
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Block(nn.Module):
    def __init__(self, recompute: bool | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.recompute = recompute  # None: not; else use_reentrant

    def inner(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.down(nn.functional.gelu(self.up(self.norm(hidden)))))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.recompute is None:
            return hidden + self.inner(hidden)
        return hidden + checkpoint(self.inner, hidden, use_reentrant=self.recompute)


class Model(nn.Module):
    """Puts out scores of tokens, and a penalty that it keeps in an attribute."""

    def __init__(self, recompute: bool | None = None, unused: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(recompute) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("seen", torch.zeros(()))
        self.penalty: torch.Tensor | None = None
        if unused:
            self.never = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        self.penalty = hidden.square().mean()
        return self.head(hidden)


def batches(step: int, count: int = 1) -> Iterator[torch.Tensor]:
    """Micro-batches of this rank."""
    generator = torch.Generator().manual_seed(step)
    for _ in range(count):
        yield torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=generator)[RANK::RANKS]


def loss_of(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


class Loop:
    """The plain style; the others change a part of it."""

    recompute: bool | None = None
    unused = False
    parallel: Mapping[str, object] = types.MappingProxyType({})

    def __init__(self, bug: bool) -> None:
        self.bug = bug
        torch.manual_seed(1)
        self.model: nn.Module = self.made()
        if RANKS > 1:
            self.model = DistributedDataParallel(self.model, **self.parallel)
        torch.manual_seed(10 + RANK)  # each rank has masks of its own
        self.wrapped()
        self.optimizers = self.make_optimizers()
        ttrace.attach(self.model, self.optimizers)

    def made(self) -> nn.Module:
        return Model(self.recompute, self.unused)

    def wrapped(self) -> None:
        pass

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.AdamW(self.model.parameters(), lr=1e-3)]

    @property
    def inner(self) -> nn.Module:
        return getattr(self.model, "module", self.model)

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        for tokens in batches(step):
            self.backward(tokens)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def backward(self, tokens: torch.Tensor) -> None:
        loss_of(self.model(tokens[:, :-1]), tokens).backward()
