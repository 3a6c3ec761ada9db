"""Faults of the precision in which a part computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from mutation.loops.inside import Forward, drawn, replace_forward
from mutation.loops.loop import Batch, PlainLoop
from mutation.loops.mutant import Draw, fault
from mutation.loops.options import LoopOptions

_OUTPUT = ("output", "input")


def _in(*precisions: str) -> Callable[[LoopOptions], bool]:
    return lambda options: options.precision in precisions


def _cast(module: nn.Module, draw: Draw, to: torch.dtype | None) -> None:
    """It computes under autocast to this, or under none."""

    def faulty(right: Forward) -> Forward:
        def forward(value: torch.Tensor) -> Any:
            with torch.autocast("cpu", to or torch.bfloat16, enabled=to is not None):
                return right(value.to(to or torch.float32)).to(value.dtype)

        return forward

    replace_forward(module, draw, faulty)


@fault("precision raised", lambda o: o.precision == "bf16" and not o.tensor, _OUTPUT, "",
       one=True)  # fmt: skip
def outside(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A linear computes outside of autocast."""
    name, module = drawn(loop, draw, nn.Linear)
    _cast(module, draw, None)
    return [name]


@fault("precision lowered", lambda o: o.precision == "fp32" and not o.tensor, _OUTPUT, "DR",
       one=True)  # fmt: skip
def lowered(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """A linear computes in bfloat16."""
    name, module = drawn(loop, draw, nn.Linear)
    _cast(module, draw, torch.bfloat16)
    return [name]


@fault("precision loss", _in("fp32"), ("loss", "grad_output"), "DL")
def loss_in_bfloat16(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The loss is computed of scores in bfloat16."""
    right = loop.main

    def main(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return right(output.bfloat16() if draw.active else output, labels)

    loop.main = main  # type: ignore[method-assign]
    return ["", "loss"]


@fault("precision scaled", lambda o: o.precision == "fp16" and not o.clip,
       ("param_updated", "optim_state", "grad_reduced"), "KHG")  # fmt: skip
def scale_kept(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """Gradients keep the scale of the loss in the step."""
    right = loop.update

    def update() -> None:
        if draw.active:
            loop.optimizer.step()
        else:
            right()

    loop.update = update  # type: ignore[method-assign]
    return ["*"]


@fault("precision unscaled", lambda o: o.precision == "fp16" and o.accumulate > 1,
       ("loss", "grad_output", "grad_local", "grad_reduced", "param_updated"), "KLSP")  # fmt: skip
def one_unscaled(loop: PlainLoop, draw: Draw) -> Sequence[str]:
    """The first micro-batch's loss is not scaled, but its gradients are unscaled."""
    right, backward = loop.micro_batch, loop.backward
    first = False

    def micro_batch(number: int, batch: Batch) -> None:
        nonlocal first
        first = number == 0
        right(number, batch)

    def unscaled(loss: torch.Tensor) -> None:
        if draw.active and first:
            loss.backward()
        else:
            backward(loss)

    loop.micro_batch, loop.backward = micro_batch, unscaled  # type: ignore[method-assign]
    return ["*"]
