"""A module's forward in a mutant's hands: replaced on the module itself, so that hooks, which run
around it, see the fault as the module's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from mutation.loops.loop import PlainLoop
from mutation.loops.mutant import Draw

Forward = Callable[..., Any]


def replace_forward(module: nn.Module, draw: Draw, faulty: Callable[[Forward], Forward]) -> None:
    """`faulty(right)` is the forward where the fault is, `right` is it elsewhere."""
    right: Forward = module.forward
    wrong = faulty(right)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (wrong if draw.here else right)(*args, **kwargs)

    module.forward = forward


def replace_output(module: nn.Module, draw: Draw, change: Callable[[Any], Any]) -> None:
    def faulty(right: Forward) -> Forward:
        return lambda *args, **kwargs: change(right(*args, **kwargs))

    replace_forward(module, draw, faulty)


def drawn(loop: PlainLoop, draw: Draw, *kinds: type[nn.Module]) -> tuple[str, nn.Module]:
    """A module of one of these kinds, by name."""
    found = [(name, m) for name, m in loop.net.named_modules() if isinstance(m, kinds)]
    return draw.rng.choice(found)
