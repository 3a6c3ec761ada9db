"""What the loops learn: a model, its batches, and the two terms of its loss."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, huber_loss

from honest.attention import LanguageModel as Attention
from tensor_parallel_toy import LENGTH, VOCABULARY, LanguageModel

ROWS, KINDS, WIDTH = 16, 5, 24
IGNORED = -100
Tensors = tuple[torch.Tensor, ...]


class Task:
    """`counts`: its first term is a sum over terms, of which there are as many as labels that are
    not IGNORED; else it is a mean over rows. The second one is a mean always."""

    counts = False

    def net(self) -> nn.Module:
        raise NotImplementedError

    def batch(self, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        """(what the model is given, the labels), of all ranks' rows."""
        raise NotImplementedError

    def main(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output, labels)

    def beside(self, output: torch.Tensor) -> torch.Tensor:
        return output.float().logsumexp(-1).square().mean()


class Language(Task):
    """Next tokens, of which those of a prompt are not learned."""

    counts = True

    def net(self) -> nn.Module:
        return LanguageModel()

    def batch(self, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=chance)
        prompts = torch.randint(1, LENGTH // 2, (ROWS, 1), generator=chance)
        labels = tokens[:, 1:].masked_fill(torch.arange(LENGTH) < prompts, IGNORED)
        return (tokens[:, :-1],), labels

    def main(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = output.float().flatten(0, 1)
        return cross_entropy(scores, labels.flatten(), ignore_index=IGNORED, reduction="sum")


class Pooled(nn.Module):
    """The mean over a row's places that hold data, classified."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Attention(width=WIDTH, is_causal=False, outputs=WIDTH)
        self.head = nn.Linear(WIDTH, KINDS)

    def forward(self, tokens: torch.Tensor, is_data: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.body(tokens, is_data), is_data))

    def pool(self, hidden: torch.Tensor, is_data: torch.Tensor) -> torch.Tensor:
        weights = is_data[..., None].to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)


class Encoder(Task):
    """Kinds of padded texts."""

    def net(self) -> nn.Module:
        return Pooled()

    def batch(self, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        tokens = torch.randint(1, 32, (ROWS, 10), generator=chance)
        lengths = torch.randint(3, 11, (ROWS, 1), generator=chance)
        is_data = torch.arange(10) < lengths
        return (tokens * is_data, is_data), torch.randint(KINDS, (ROWS,), generator=chance)


class Images(Task):
    """Kinds of images; its batch norms keep running statistics."""

    def net(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, KINDS),
        )

    def batch(self, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        images = torch.randn(ROWS, 3, 12, 12, generator=chance)
        return (images,), torch.randint(KINDS, (ROWS,), generator=chance)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(gelu(self.up(self.norm(x))))


class Perceptron(Task):
    """A function of few numbers."""

    def net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, WIDTH), Residual(), Residual(), nn.Linear(WIDTH, 2))

    def batch(self, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        given = torch.randn(ROWS, 8, generator=chance)
        return (given,), given[:, :2].sin() * 2 + torch.randn(ROWS, 2, generator=chance)

    def main(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return huber_loss(output.float(), labels)

    def beside(self, output: torch.Tensor) -> torch.Tensor:
        return output.float().square().mean()


TASKS: dict[str, type[Task]] = {
    "language": Language,
    "encoder": Encoder,
    "images": Images,
    "perceptron": Perceptron,
}
