"""Runs a training script as it is, and prints of each step of its optimizers what two runs that
differ in no bit have in common: losses, gradients, parameters, buffers and random states.

    python python/tests/step_digests.py SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import hashlib
import os
import random
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import ttrace

ZOO = Path(__file__).resolve().parents[2] / "zoo"
sys.path.insert(0, str(ZOO))
from state_digest import local, parameter_digest, print_line, random_digest  # noqa: E402


class Digests:
    """Of one rank. Looks from outside: capture knows nothing of it."""

    def __init__(self) -> None:
        self._models: list[torch.nn.Module] = []
        self._losses: list[str] = []  # since the step before
        self._steps = 0
        self._attach, self._backward = ttrace.attach, torch.Tensor.backward
        ttrace.attach = self._attached
        torch.Tensor.backward = lambda loss, *args, **how: self._lost(loss, *args, **how)
        register_optimizer_step_post_hook(lambda *_: self._stepped())

    def _attached(self, model: Any, *rest: object, **how: object) -> None:
        several = model.values() if isinstance(model, dict) else model
        self._models += several if isinstance(several, Iterable) else [model]
        self._attach(model, *rest, **how)

    def _lost(self, loss: torch.Tensor, *args: object, **how: object) -> None:
        self._losses.append(repr(local(loss).tolist()))
        self._backward(loss, *args, **how)

    def _stepped(self) -> None:
        self.say(f"step {self._steps}")
        self._steps += 1
        self._losses.clear()

    def say(self, when: str) -> None:
        states = hashlib.sha256()
        for model in self._models:
            states.update(parameter_digest(model).encode())
            for name, parameter in model.named_parameters():
                gradient = None if parameter.grad is None else local(parameter.grad).contiguous()
                states.update(f"{name} {gradient is None}".encode())
                if gradient is not None:
                    states.update(gradient.view(torch.uint8).numpy().tobytes())
            for name, buffer in model.named_buffers():
                states.update(name.encode())
                states.update(buffer.reshape(-1).view(torch.uint8).numpy().tobytes())
        losses = " ".join(self._losses)
        rank = os.environ.get("RANK", "0")
        print_line(f"{when} rank {rank} {losses} {states.hexdigest()} {random_digest({})}")


def main() -> None:
    script = ZOO / sys.argv[1]
    sys.argv = [str(script), *sys.argv[2:]]
    sys.path.insert(0, str(script.parent))
    random.seed(1)  # these two are otherwise of each process
    numpy.random.seed(1)
    digests = Digests()
    runpy.run_path(str(script), run_name="__main__")
    digests.say("state")


if __name__ == "__main__":
    main()
