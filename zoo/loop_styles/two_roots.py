"""Loops that call two models apart from each other, each in DistributedDataParallel of its own."""

from __future__ import annotations

import copy

import torch
from loop import RANK, RANKS, ROWS, WIDTH, Loop
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ttrace

SIZE = 12


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, SIZE)
        self.norm = nn.BatchNorm1d(2 * WIDTH)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.out(nn.functional.gelu(self.norm(self.up(noise)))))


class Critic(nn.Module):
    def __init__(self, out: int = 1) -> None:
        super().__init__()
        self.inner, self.score = nn.Linear(SIZE, 2 * WIDTH), nn.Linear(2 * WIDTH, out)
        self.dropout = nn.Dropout(0.1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.score(self.dropout(nn.functional.leaky_relu(self.inner(picture), 0.2)))


def drawn(step: int, width: int, seed: int = 0) -> torch.Tensor:
    """Rows of this rank, in one block."""
    generator = torch.Generator().manual_seed(1000 * seed + step)
    return torch.randn(ROWS, width, generator=generator).chunk(RANKS)[RANK]


def parallel(model: nn.Module, **how: object) -> nn.Module:
    return DistributedDataParallel(model, **how) if RANKS > 1 else model


def loss_of(scores: torch.Tensor, is_real: bool) -> torch.Tensor:
    target = torch.full_like(scores, float(is_real))
    return nn.functional.binary_cross_entropy_with_logits(scores, target)


class Adversarial(Loop):
    """The critic's two halves and its step, then the generator's."""

    without_gradients = False

    def __init__(self, bug: bool) -> None:
        self.bug = bug
        torch.manual_seed(1)
        # Buffers that a forward broadcasts are none that a backward before it has used.
        self.generator = parallel(Generator(), broadcast_buffers=False)
        self.critic = parallel(Critic())
        torch.manual_seed(10 + RANK)
        adam = torch.optim.Adam
        self.optimizers = [
            adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.99)),
            adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
        ]
        self.attach()

    def attach(self) -> None:
        models = {"generator": self.generator, "critic": self.critic}
        ttrace.attach(models, self.optimizers)

    def step(self, step: int) -> None:
        of_critic, of_generator = self.optimizers
        of_critic.zero_grad()
        loss_of(self.critic(drawn(step, SIZE)), True).backward()
        with torch.set_grad_enabled(not self.without_gradients):
            fake = self.generator(drawn(step, WIDTH, 1))
        loss_of(self.critic(fake.detach()), False).backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
        of_critic.step()
        of_generator.zero_grad()
        loss_of(self.critic(self.generator(drawn(step, WIDTH, 2))), True).backward()
        of_generator.step()


class WithoutGradients(Adversarial):
    """The generator is called under no_grad where its pictures are judged, and once an iteration,
    on the first rank, for a look at them."""

    without_gradients = True

    def step(self, step: int) -> None:
        super().step(step)
        if RANK == 0:
            with torch.no_grad():
                getattr(self.generator, "module", self.generator)(drawn(0, WIDTH, 3))


class Taught(Loop):
    """By a teacher that follows what it teaches."""

    def __init__(self, bug: bool) -> None:
        self.bug = bug
        torch.manual_seed(1)
        student = Critic(8)
        self.teacher = copy.deepcopy(student).eval().requires_grad_(False)
        self.student = parallel(student)
        torch.manual_seed(10 + RANK)
        self.optimizers = [torch.optim.AdamW(self.student.parameters(), lr=1e-3)]
        ttrace.attach([self.student, self.teacher], self.optimizers)

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        rows = drawn(step, SIZE)
        with torch.no_grad():
            target = self.teacher(rows).softmax(-1)
        scores = self.student(rows + 0.1 * drawn(step, SIZE, 1))
        nn.functional.cross_entropy(scores, target).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
            for mean, parameter in pairs:
                mean.lerp_(parameter, 0.1)


STYLES: dict[str, type[Loop]] = {
    "adversarial": Adversarial,
    "adversarial-without-gradients": WithoutGradients,
    "taught": Taught,
}
