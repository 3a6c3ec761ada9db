#!/usr/bin/env python3
"""What people do without a tool: hooks on all modules that save each output and gradient with
torch.save, or write down its statistics. Neither has parameters, gradients or state.

    python bench/by_hand.py (save|statistics) DIR FIRST:END SCRIPT [ARGUMENT ...]

FIRST:END: which steps, of four micro-batches each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules import module as hooks
from wrapped_script import run_script

MICRO_BATCHES = 4


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


class Dump:
    def __init__(self, keep: Callable[[str, torch.Tensor], None], steps: range) -> None:
        self._keep = keep
        self._steps = steps
        self._calls = 0  # of the outermost module
        self._depth = 0
        self._number = 0

    def enter(self, _module: torch.nn.Module, _inputs: Any) -> None:
        if self._depth == 0 and torch.is_grad_enabled():
            self._calls += 1
        self._depth += 1

    def leave(self, module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        self._depth -= 1
        self._dump(f"{type(module).__name__}.output", output)

    def backward(self, module: torch.nn.Module, _grad_input: Any, grad_output: Any) -> None:
        self._dump(f"{type(module).__name__}.grad_output", grad_output)

    def _dump(self, name: str, value: Any) -> None:
        if (self._calls - 1) // MICRO_BATCHES not in self._steps:
            return
        for tensor in tensors(value):
            self._number += 1
            self._keep(f"{self._number:06d}.{name}", tensor.detach())


def main() -> None:
    kind, folder, steps, *command = sys.argv[1:]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    lines = (out / "statistics.jsonl").open("w")

    def save(name: str, tensor: torch.Tensor) -> None:
        torch.save(tensor, out / f"{name}.pt")

    def statistics(name: str, tensor: torch.Tensor) -> None:
        if not tensor.is_floating_point():
            return
        wide = tensor.float()
        row = [wide.min(), wide.max(), wide.mean(), wide.norm()]
        numbers = [float(number) for number in row]
        lines.write(json.dumps({"name": name, "shape": list(tensor.shape), "of": numbers}) + "\n")

    first, end = (int(word) for word in steps.split(":"))
    dump = Dump({"save": save, "statistics": statistics}[kind], range(first, end))
    hooks.register_module_forward_pre_hook(dump.enter)
    hooks.register_module_forward_hook(dump.leave)
    hooks.register_module_full_backward_hook(dump.backward)
    run_script(command)
    lines.close()


if __name__ == "__main__":
    main()
