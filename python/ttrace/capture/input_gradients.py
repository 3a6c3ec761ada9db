"""The gradient that leaves a module through one of its inputs, without touching the graph.

Putting a view between an input and the module, to hang a hook on, changes numbers: where a tensor
has three uses or more, the view's own sum is added to the others' in another order. So nothing is
inserted. After the module's forward, the nodes that it created are searched for edges into the
input's node, and hooks on those nodes read what flows along the edges. This also sees the gradient
of an input that the module modifies in place: if it is a view, autograd lets the new graph begin at
its base, with a node of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

Emit = Callable[[torch.Tensor], None]

# What autograd calls a change of a view in place; its first edge goes to the base.
_CHANGE_OF_VIEW = "torch::autograd::CopySlices"
# Whether torch says which of two nodes is older. If not, all of them are searched.
_AGED = hasattr(torch.autograd.graph.Node, "_sequence_nr")


class InputTarget:
    """An input as autograd knows it before the module runs."""

    def __init__(self, tensor: torch.Tensor, emit: Emit | None) -> None:
        """`emit` is None for an input whose gradient nobody wants: the search stops there."""
        node = tensor.grad_fn
        if node is None:  # a leaf: its gradient is accumulated by a node of its own
            with torch.enable_grad():
                node = tensor.view_as(tensor).grad_fn.next_functions[0][0]
        self.node = node
        self.index = tensor.output_nr
        self.emit = emit
        # The node of the base, for a view of all of it: the base's gradient is the view's.
        self.base: Any = None
        base = getattr(tensor, "_base", None)
        if base is not None and base.grad_fn is not None and _same_elements(tensor, base):
            self.base, self.base_index = base.grad_fn, base.output_nr
            self.shape = tensor.shape


def _same_elements(view: torch.Tensor, base: torch.Tensor) -> bool:
    """In the same order, too."""
    return view.numel() == base.numel() and view.is_contiguous() and base.is_contiguous()


class GradientSum:
    """Adds what arrives along several edges, in order of arrival, and emits it once for each
    backward through the graph."""

    def __init__(self, edges: int, emit: Emit, shape: torch.Size | None = None) -> None:
        """`shape` is that of the input, where edges may carry its base's."""
        self._edges = self._waiting = edges
        self._emit = emit
        self._shape = shape
        self._total: torch.Tensor | None = None
        self._several = edges > 1

    def arrived(self, gradient: torch.Tensor | None) -> None:
        self._waiting -= 1
        if gradient is not None:
            if self._shape is not None:
                gradient = gradient.reshape(self._shape)
            if self._total is not None:
                self._total = self._total + gradient
            else:
                # Autograd may add the next term into this tensor in place.
                self._total = gradient.clone() if self._several else gradient
        if self._waiting == 0:
            self.flush()

    def flush(self) -> None:
        """Emits what there is: an edge that never fires carries no gradient."""
        self._waiting = self._edges
        total, self._total = self._total, None
        if total is not None:
            self._emit(total)


def watch_inputs(
    outputs: Iterable[torch.Tensor],
    targets: list[InputTarget],
    guarded: Callable[[Any], Any],
) -> list[GradientSum]:
    """Hooks every edge from the graph of `outputs` into `targets`. To be called right after the
    module's forward. Returns the sums that the backward will fill."""
    start = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    by_node: dict[Any, list[InputTarget]] = {}
    by_base: dict[Any, list[InputTarget]] = {}
    for target in targets:
        by_node.setdefault(target.node, []).append(target)
        if target.base is not None:
            by_base.setdefault(target.base, []).append(target)
    # Nodes older than every input belong to what ran before the module.
    # (Accumulators of leaves have no age.)
    ages = [node._sequence_nr() for node in by_node if _AGED and node.next_functions]
    oldest = min(ages, default=-1)

    edges: dict[InputTarget, list[tuple[Any, int]]] = {}
    # A module may hand an input on as its output: then there is no edge inside it.
    stack = [node for node in start if node not in by_node]
    seen = set(stack)
    while stack:
        node = stack.pop()
        for position, (following, index) in enumerate(node.next_functions):
            if following is None:
                continue
            based = by_base.get(following) if position == 0 else None
            if based is not None and node.name() == _CHANGE_OF_VIEW:
                for target in based:
                    if target.base_index == index:
                        edges.setdefault(target, []).append((node, position))
            hit = by_node.get(following)
            if hit is not None:
                for target in hit:
                    if target.index == index:
                        edges.setdefault(target, []).append((node, position))
            elif following not in seen and (not _AGED or following._sequence_nr() > oldest):
                seen.add(following)
                stack.append(following)

    sums = []
    for target, found in edges.items():
        if target.emit is None:
            continue
        shape = None if target.base is None else target.shape
        total = GradientSum(len(found), target.emit, shape)
        sums.append(total)
        for node, position in found:
            node.register_hook(guarded(_read_edge(total, position)))
    return sums


def _read_edge(total: GradientSum, position: int) -> Callable[[Any, Any], None]:
    def hook(grad_inputs: tuple[torch.Tensor | None, ...], grad_outputs: Any) -> None:
        total.arrived(grad_inputs[position])

    return hook
