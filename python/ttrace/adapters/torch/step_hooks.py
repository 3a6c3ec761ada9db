"""Hooks around the steps of the loop's optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class StepHooks:
    """`before(optimizer, ...)` and `after(optimizer, ...)` are called around each step."""

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        before: Callable[..., None],
        after: Callable[..., None],
    ) -> None:
        self._optimizers = list(optimizers)
        self._before: Callable[..., None] | None = before
        self._after: Callable[..., None] | None = after
        self._inside = False
        self._handles_before: list[Any] = []
        self._handles_after = [
            optimizer.register_step_post_hook(self._step_ends) for optimizer in self._optimizers
        ]
        self.come_last()

    def come_last(self) -> None:
        """Behind hooks that the loop has added since: they may change gradients before a step. Not
        to be called within one."""
        for handle in self._handles_before:
            handle.remove()
        self._handles_before = [
            optimizer.register_step_pre_hook(self._step_begins) for optimizer in self._optimizers
        ]

    def stop(self) -> None:
        """They do nothing any more. Within a step torch goes through its tables of hooks, which
        must not change meanwhile: what does nothing stays."""
        self._before = self._after = None
        if not self._inside:
            for handle in (*self._handles_before, *self._handles_after):
                handle.remove()

    def _step_begins(self, *arguments: Any) -> None:
        if self._before is not None:
            self._inside = True
            self._before(*arguments)

    def _step_ends(self, *arguments: Any) -> None:
        if self._after is not None:
            self._after(*arguments)
            self._inside = False
