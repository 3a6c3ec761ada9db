"""What each iteration of a loop does, for another run of it to be held against."""

from __future__ import annotations

from typing import Any

import torch

from mutation.loops.loop import PlainLoop

# "gradients" that are stepped and what is there "after" the step, by name.
Step = dict[str, dict[str, torch.Tensor]]


class Measure:
    """Of one rank's loop, from now on."""

    def __init__(self, loop: PlainLoop) -> None:
        self.steps: list[Step] = []
        self._loop = loop
        clear = loop.clear

        def cleared() -> None:
            self._look()
            clear()

        loop.clear = cleared  # type: ignore[method-assign]

    def _look(self) -> None:
        named = list(self._loop.net.named_parameters())
        gradients = {name: _local(p.grad) for name, p in named if p.grad is not None}
        state = [*named, *self._loop.net.named_buffers()]
        after = {name: _local(value) for name, value in state}
        self.steps.append({"gradients": gradients, "after": after})

    def write(self, path: str) -> None:
        torch.save(self.steps, f"{path}.rank-{self._loop.rank}")


def changed(right: Step, wrong: Step, what: str) -> list[str]:
    """The names of what is not bit for bit the same, or is not there."""
    return [
        name
        for name in {**right[what], **wrong[what]}
        if name not in right[what]
        or name not in wrong[what]
        or not torch.equal(right[what][name], wrong[what][name])
    ]


def _local(tensor: Any) -> torch.Tensor:
    """A DTensor's on this rank."""
    return getattr(tensor, "_local_tensor", tensor).detach().clone()
