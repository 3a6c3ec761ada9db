"""A hook of a tensor that runs before those that were registered before it.

What a loop's own hook does to a gradient, reducing it over ranks or scaling it, comes after what
backward has made, whoever registered first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def register_first(tensor: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> Any:
    """Of a leaf, not while its hooks run. Returns torch's handle, which removes it."""
    handle = tensor.register_hook(hook)
    hooks = getattr(tensor, "_backward_hooks", None)
    if hooks is None:  # another torch: see private_names.py
        return handle
    # torch goes through them in the order of insertion, which an OrderedDict's move_to_end is not.
    for key in [key for key in hooks if key != handle.id]:
        hooks[key] = hooks.pop(key)
    return handle
