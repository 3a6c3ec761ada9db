"""The model that a loop has attached, in its wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.compiled import outside, wrappers_around
from ttrace.adapters.torch.topology import canonical_name, inside, wrappers
from ttrace.capture import nested
from ttrace.capture.module_hooks import Arguments
from ttrace.capture.patches import Patches

_LOW_PRECISION = (torch.float16, torch.bfloat16)


class AttachedModel:
    """May still be wrapped in DistributedDataParallel, or compiled, after `attach`."""

    def __init__(self, model: nn.Module, patches: Patches, loss_name: str = "") -> None:
        """`loss_name`: of what computes the loss, where the loop has said it."""
        self.loss_name = loss_name
        self.patches = patches
        chain = wrappers(model)
        if len(chain) == 1:
            chain = wrappers_around(model)
        self.chain = chain  # of wrappers, the outermost first
        self.root = chain[-1]
        self.outside = outside(chain)  # whose calls are seen
        self.ddp = next((m for m in chain if isinstance(m, DistributedDataParallel)), None)
        self.arguments = Arguments.of(inside(self.root))
        self.batch_norms = {
            canonical_name(name): module
            for name, module in self.root.named_modules()
            if isinstance(module, _BatchNorm)
        }
        self._wrapped: Callable[[], None] = lambda: None
        patches.wrap_result(DistributedDataParallel, "__init__", self._ddp_made)

    def on_wrapped(self, function: Callable[[], None]) -> None:
        """Calls it whenever something is wrapped around the model."""
        self._wrapped = function

    def _ddp_made(self, wrapper: Any, result: Any) -> Any:
        """Finds a wrapper that is put around the model after `attach`."""
        if self.is_in(getattr(wrapper, "module", None)):
            self.ddp = wrapper
            self._now_in(wrapper)
        return result

    def _now_in(self, wrapper: nn.Module) -> None:
        chain = wrappers(wrapper)
        if len(chain) > len(self.chain):
            self.chain = chain
        self._wrapped()

    def is_in(self, module: Any) -> bool:
        """Whether this is what the wrappers of a module hold."""
        return wrappers(module)[-1] is self.root

    def compiled_as(self, module: nn.Module) -> None:
        """It was compiled after `attach`: only calls of this are seen any more."""
        self.outside = module
        self._now_in(module)

    def is_low_precision(self) -> bool:
        low = any(p.dtype in _LOW_PRECISION for p in self.root.parameters())
        return low or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")

    def parameter_names(self) -> dict[int, str]:
        """By id."""
        return {id(p): canonical_name(fqn) for fqn, p in self.root.named_parameters()}

    @staticmethod
    def rows_of(arguments: dict[str, Any], tensors: list[torch.Tensor]) -> int | None:
        """Rows of one forward; None if no argument has any."""
        first = next((v for v in arguments.values() if torch.is_tensor(v) or nested.named(v)), None)
        if isinstance(first, list | tuple):
            return len(first)
        return next((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), None)
