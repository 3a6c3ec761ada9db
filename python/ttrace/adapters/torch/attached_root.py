"""One of the models that a loop has attached, in its wrappers: a module that the loop calls."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.compiled import outside, wrappers_around
from ttrace.adapters.torch.wrappers import inside, wrappers
from ttrace.capture.module_hooks import Arguments


class AttachedRoot:
    """May still be wrapped in DistributedDataParallel, or compiled, after `attach`."""

    def __init__(
        self, number: int, roots: int, name: str, model: nn.Module, stepped: Collection[int]
    ) -> None:
        """`number`: its place among so many `roots`. `stepped`: ids of the parameters that the
        loop's optimizers step."""
        self.number, self.roots = number, roots
        self.name = name  # the first word of its modules' names; "": it is all that was attached
        chain = wrappers(model)
        if len(chain) == 1:
            chain = wrappers_around(model)
        self.chain = chain  # of wrappers, the outermost first
        self.module = chain[-1]
        self.outside = outside(chain)  # whose calls are seen
        self.ddp = next((m for m in chain if isinstance(m, DistributedDataParallel)), None)
        self.arguments = Arguments.of(inside(self.module))
        self.is_stepped = any(id(parameter) in stepped for parameter in self.module.parameters())

    def holds(self, module: Any) -> bool:
        """Whether this is what the wrappers of a module hold."""
        return wrappers(module)[-1] is self.module

    def has(self, fqn: str) -> bool:
        """Whether a module of this name is one of its own."""
        return not self.name or fqn == self.name or fqn.startswith(f"{self.name}.")

    def ddp_made(self, wrapper: Any) -> None:
        self.ddp = wrapper
        self._now_in(wrapper)

    def compiled_as(self, module: nn.Module) -> None:
        """After `attach`: only calls of this are seen any more."""
        self.outside = module
        self._now_in(module)

    def _now_in(self, wrapper: nn.Module) -> None:
        chain = wrappers(wrapper)
        if len(chain) > len(self.chain):
            self.chain = chain
