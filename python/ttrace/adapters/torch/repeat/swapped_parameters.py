"""Other leaves in place of a model's parameters while a leg runs.

They share the parameters' memory, but for those that a leg steps. So nothing that a leg does
reaches the gradients of the run, nor what hangs on their accumulation: DistributedDataParallel's
reducer counts the parameters that a backward has reached even where it reduces nothing. What the
loop does to a gradient on its way is a part of the computation, and stays: hooks of a parameter are
hooks of the other, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

LOW = (torch.bfloat16, torch.float16)


@contextmanager
def swapped_parameters(
    root: nn.Module, *, in_fp32: bool = False, stepped: Collection[int] = ()
) -> Iterator[Mapping[int, torch.Tensor]]:
    """Inside, `root` has others. Gives them by the ids of those whose place they take. `in_fp32`:
    those in low precision are copies. `stepped`: ids of those that must be copies anyway."""
    others: dict[int, nn.Parameter] = {}
    places: list[tuple[nn.Module, str, Any]] = []
    try:
        for module in root.modules():
            if isinstance(module, nn.RNNBase):  # it makes these anew for other parameters
                refs: Any = getattr(module, "_flat_weight_refs", None)
                places.append((module, "_flat_weight_refs", refs))
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    places.append((module, name, parameter))
                    # By its name: recurrent modules keep a list beside.
                    other = _other(parameter, others, in_fp32, id(parameter) in stepped)
                    setattr(module, name, other)
            for name, buffer in list(module._buffers.items()) if in_fp32 else ():
                if buffer is not None and buffer.dtype in LOW:
                    places.append((module, name, buffer))
                    setattr(module, name, buffer.float())
        yield others
    finally:
        for module, name, tensor in reversed(places):
            setattr(module, name, tensor)


def _other(
    parameter: nn.Parameter, others: dict[int, nn.Parameter], in_fp32: bool, apart: bool
) -> nn.Parameter:
    if id(parameter) not in others:
        value = parameter.detach()
        if in_fp32 and value.dtype in LOW:
            value = value.float()
        elif apart:
            value = value.clone()
        # As hooks need it.
        other = nn.Parameter(value, requires_grad=can_have_gradient(value))
        other.__dict__.update(parameter.__dict__)
        other._backward_hooks = parameter._backward_hooks and parameter._backward_hooks.copy()
        for hook in (parameter._post_accumulate_grad_hooks or {}).values():
            other.register_post_accumulate_grad_hook(hook)
        other.requires_grad_(parameter.requires_grad)
        others[id(parameter)] = other
    return others[id(parameter)]


def can_have_gradient(parameter: torch.Tensor) -> bool:
    return parameter.is_floating_point() or parameter.is_complex()
