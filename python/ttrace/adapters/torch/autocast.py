"""Modules that torch.autocast makes round more than the tensors at their edges show.

A linear puts out what it computes in: bfloat16. A GRU takes and gives float32 and multiplies in
bfloat16 inside. What tells is a cast of one of the module's own parameters in the graph of what it
put out.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import nn

from ttrace.capture import nested

_NODES = 1000  # of the graph, nearest first


def casts_own_parameters(module: nn.Module, output: Any) -> bool:
    """Whether the graph of `output`, as `module` gave it, casts a parameter of the module's own."""
    own = {id(parameter) for parameter in module.parameters(recurse=False)}
    waiting = deque(v.grad_fn for _, v in nested.outputs(output) if v.grad_fn is not None)
    seen: set[Any] = set()
    while waiting and own and len(seen) < _NODES:
        node = waiting.popleft()
        if node in seen:
            continue
        seen.add(node)
        following = [child for child, _ in node.next_functions if child is not None]
        if node.name().startswith("ToCopyBackward") and any(
            id(getattr(child, "variable", None)) in own for child in following
        ):
            return True
        waiting.extend(following)
    return False
