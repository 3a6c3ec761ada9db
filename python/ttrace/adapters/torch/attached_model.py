"""What a loop has attached: one model, or several that it calls apart from each other.

Several are the children of one module that nobody calls, so that all have names in one tree, and
whatever looks at modules and parameters need not know how many roots there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch.attached_root import AttachedRoot
from ttrace.adapters.torch.loss_scale import parameters_of
from ttrace.adapters.torch.wrappers import canonical_name
from ttrace.capture import nested
from ttrace.capture.patches import Patches

_LOW_PRECISION = (torch.float16, torch.bfloat16)


class AttachedModel:
    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Sequence[Any],
        patches: Patches,
        loss_name: str = "",
        within: nn.Module | None = None,
    ) -> None:
        """`models` by name, of which a single one may have none. `loss_name`: of what computes the
        loss, where the loop has said it. `within`: what is around all of them."""
        self.loss_name = loss_name
        self.patches = patches
        stepped = {id(p) for optimizer in optimizers for p in parameters_of(optimizer)}
        self.roots = [
            AttachedRoot(number, len(models), name, model, stepped)
            for number, (name, model) in enumerate(models.items())
        ]
        self._within = [within] if isinstance(within, DistributedDataParallel) else []
        first = self.roots[0]
        self.root = first.module if not first.name else _tree(self.roots)
        trained = [root for root in self.roots if self._is_trained(root)]
        self.batch_norms = {
            name: module
            for name, module in self._named_modules()
            if isinstance(module, _BatchNorm) and any(root.has(name) for root in trained)
        }
        self._wrapped: Callable[[], None] = lambda: None
        patches.wrap_result(DistributedDataParallel, "__init__", self._ddp_made)

    def _named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        for name, module in self.root.named_modules():
            yield canonical_name(name), module

    @property
    def has_several(self) -> bool:
        return len(self.roots) > 1

    @property
    def kind(self) -> str:
        """For people: classes of the modules that the loop calls."""
        return ", ".join(type(root.module).__name__ for root in self.roots)

    @property
    def ddps(self) -> list[DistributedDataParallel]:
        return [*self._within, *(root.ddp for root in self.roots if root.ddp is not None)]

    @property
    def outside(self) -> list[nn.Module]:
        """Of all roots, whose calls are seen."""
        return [root.outside for root in self.roots]

    @property
    def chain(self) -> list[nn.Module]:
        """Of all roots, the module and its wrappers."""
        return [module for root in self.roots for module in root.chain]

    def on_wrapped(self, function: Callable[[], None]) -> None:
        """Calls it whenever something is wrapped around a root."""
        self._wrapped = function

    def _ddp_made(self, wrapper: Any, result: Any) -> Any:
        """Finds a wrapper that is put around a root after `attach`."""
        root = self.root_in(getattr(wrapper, "module", None))
        if root is not None:
            root.ddp_made(wrapper)
            self._wrapped()
        return result

    def compiled_as(self, module: nn.Module) -> bool:
        """Whether it is a root that was compiled."""
        root = self.root_in(module)
        if root is not None:
            root.compiled_as(module)
            self._wrapped()
        return root is not None

    def root_in(self, module: Any) -> AttachedRoot | None:
        """What the wrappers of a module hold, if the loop has attached it."""
        return next((root for root in self.roots if root.holds(module)), None)

    def is_in(self, module: Any) -> bool:
        return self.root_in(module) is not None

    @property
    def trains(self) -> bool:
        """Whether what the loop trains is in training mode."""
        return any(root.module.training and self._is_trained(root) for root in self.roots)

    def is_of_training(self, root: AttachedRoot) -> bool:
        """Whether a call of a root now is a part of an iteration. Of several, those that nothing
        steps (a teacher, a frozen judge) are called in evaluation mode, and without gradients."""
        if not self._is_trained(root):
            return self.trains
        return torch.is_grad_enabled() and root.module.training

    def _is_trained(self, root: AttachedRoot) -> bool:
        return root.is_stepped or not any(other.is_stepped for other in self.roots)

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


def _tree(roots: Sequence[AttachedRoot]) -> nn.Module:
    tree = nn.Module()
    for root in roots:
        tree.add_module(root.name, root.module)
    return tree
