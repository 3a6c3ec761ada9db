"""A small model of tokens, its data and its loss."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, LENGTH, WIDTH = 64, 12, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(self.act(self.up(self.norm(hidden))))


class TokenModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


def rows(first: int, count: int) -> torch.Tensor:
    """Rows of an endless data set; each is a function of its number alone."""
    return torch.stack(
        [
            torch.randint(VOCABULARY, (LENGTH + 1,), generator=torch.Generator().manual_seed(seed))
            for seed in range(1000 + first, 1000 + first + count)
        ]
    )


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
