"""What torch puts around modules, and what is inside."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Where torch's own wrappers keep the module that they are put around: torch.compile, and those of
# torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
_ACTIVATION_WRAPPED = "_checkpoint_wrapped_module"
_WRAPPED = ("_orig_mod", _ACTIVATION_WRAPPED)


def canonical_name(name: str) -> str:
    """Without what torch puts around a module."""
    return ".".join(word for word in name.split(".") if word not in _WRAPPED)


def is_activation_wrapper(module: nn.Module) -> bool:
    """What checkpoint_wrapper or offload_wrapper has made: it hands on what the module inside it
    computes, and has its name."""
    return _ACTIVATION_WRAPPED in module._modules


def inside(module: nn.Module) -> nn.Module:
    """The module itself, or what activation wrappers around it hand their arguments to."""
    while is_activation_wrapper(module):
        module = module._modules[_ACTIVATION_WRAPPED]  # type: ignore[assignment]
    return module


def wrappers(model: nn.Module) -> list[nn.Module]:
    """`model` and what is inside it, down to the user's own module, which is the last."""
    chain = [model]
    while True:
        inside = chain[-1]
        if isinstance(inside, DistributedDataParallel):
            chain.append(inside.module)
        elif is_compiled_wrapper(inside):
            chain.append(inside._orig_mod)  # type: ignore[arg-type]
        else:
            return chain


def is_compiled_wrapper(module: Any) -> bool:
    """What torch.compile(module) returns."""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
