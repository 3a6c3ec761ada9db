"""Optimizers that step in turn: what the second one steps is made when the first has stepped."""

from __future__ import annotations

import types

import torch
from loop import Loop, batches, loss_of
from torch import nn


class TwoOptimizers(Loop):
    """Of two parts of the model, one after the other."""

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        inner = self.inner
        rest = [p for name, p in inner.named_parameters() if not name.startswith("blocks.")]
        return [
            torch.optim.SGD(inner.blocks.parameters(), lr=1e-2, momentum=0.9),
            torch.optim.AdamW(rest, lr=1e-3),
        ]

    def step(self, step: int) -> None:
        for tokens in batches(step):
            self.backward(tokens)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()


class InTurn(TwoOptimizers):
    """The second optimizer's gradients are made when the first has stepped."""

    def step(self, step: int) -> None:
        for optimizer in self.optimizers:
            for one in self.optimizers:
                one.zero_grad()
            self.part(step, optimizer)
            self.stepped(optimizer)

    def part(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        for tokens in batches(step):
            self.backward(tokens)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()


class Clipped(InTurn):
    """Each with a schedule of its own, and gradients cleared in place."""

    def wrapped(self) -> None:
        self.schedules: list[torch.optim.lr_scheduler.LRScheduler] = []

    def step(self, step: int) -> None:
        if not self.schedules:
            step_lr = torch.optim.lr_scheduler.StepLR
            self.schedules = [step_lr(one, 1, gamma=0.9) for one in self.optimizers]
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            self.part(step, optimizer)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, 0.1)
            optimizer.step()
            schedule.step()
            for one in self.optimizers:
                one.zero_grad(set_to_none=False)


class Scaled(InTurn):
    """By one scaler, whose scale stays for the iteration."""

    each = False

    def wrapped(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, step: int) -> None:
        super().step(step)
        if not self.each:
            self.scaler.update()

    def backward(self, tokens: torch.Tensor) -> None:
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(self.model(tokens[:, :-1]), tokens)
        self.scaler.scale(loss).backward()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self.scaler.step(optimizer)
        if self.each:
            self.scaler.update()


class ScaledEach(Scaled):
    """The scale may be another after each step."""

    each = True


class Toggled(InTurn):
    """Only what is stepped wants gradients."""

    parallel = types.MappingProxyType({"find_unused_parameters": True})

    def part(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        for one in self.optimizers:
            for group in one.param_groups:
                for parameter in group["params"]:
                    parameter.requires_grad_(one is optimizer)
        super().part(step, optimizer)


class Bounded(InTurn):
    """Weights are kept within bounds, as critics' are."""

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        if optimizer is self.optimizers[0]:
            with torch.no_grad():
                self.inner.blocks[0].up.weight.clamp_(-0.1, 0.1)
            for parameter in self.inner.blocks[1].parameters():
                parameter.data.clamp_(-0.1, 0.1)


class Seldom(InTurn):
    """The second one steps in every second iteration."""

    def step(self, step: int) -> None:
        first, second = self.optimizers
        for optimizer in (first, second) if step % 2 else (first,):
            for one in self.optimizers:
                one.zero_grad()
            self.part(step, optimizer)
            optimizer.step()


STYLES: dict[str, type[Loop]] = {
    "two-optimizers": TwoOptimizers,
    "in-turn": InTurn,
    "in-turn-clipped": Clipped,
    "in-turn-scaled": Scaled,
    "in-turn-scaled-each": ScaledEach,
    "in-turn-toggled": Toggled,
    "in-turn-bounded": Bounded,
    "in-turn-seldom": Seldom,
}
