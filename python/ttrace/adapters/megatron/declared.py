"""Where a parameter lies whose module's class no rule knows.

Megatron itself reduces and saves parameters by the attributes that they carry, so these say where
such a parameter lies; the shape of the reference's parameter, where there is one, must agree. What
stays ambiguous is neither recorded nor grafted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ttrace.adapters.megatron.structure import partition_dim
from ttrace.adapters.megatron.topology import Topology


@dataclass(frozen=True)
class Declared:
    """The words of its placement, the dimensions its gradient is summed over, or why not."""

    words: dict[str, str] = field(default_factory=dict)
    summed: tuple[str, ...] = ("dp", "cp")
    averaged: tuple[str, ...] = ()
    refusal: str | None = None


def declared(
    parameter: torch.Tensor, topology: Topology, reference: Sequence[int] | None
) -> Declared:
    """`reference` is the shape of the whole parameter in the reference, if that is known."""
    if is_distributed_tensor(parameter):
        return Declared(refusal="a DTensor of another framework than Megatron's own parallelism")
    if getattr(parameter, "allreduce", True) is False:
        return Declared(refusal="an expert's parameter, of which other ranks have others")
    words = placement_words(parameter, topology)
    refusal = None
    if reference is not None:
        words, refusal = _agreed(list(parameter.shape), list(reference), words, topology)
    if refusal is not None:
        return Declared(refusal=refusal)
    summed, averaged = ["dp", "cp"], []
    if topology.size["tp"] > 1 and "tp" not in words:
        # As finalize_model_grads does.
        if topology.sequence_parallel and getattr(parameter, "sequence_parallel", False):
            summed.append("tp")
        elif getattr(parameter, "average_gradients_across_tp_domain", False):
            averaged.append("tp")
    return Declared(words, tuple(summed), tuple(averaged))


def placement_words(parameter: torch.Tensor, topology: Topology) -> dict[str, str]:
    """By the parameter's attributes alone; nothing is said: not cut."""
    dim = partition_dim(parameter)
    if topology.size["tp"] == 1 or dim is None:
        return {}
    stride = getattr(parameter, "partition_stride", 1)
    if isinstance(stride, int) and stride > 1:
        return {"tp": f"StridedShard({dim},{stride})"}
    return {"tp": f"Shard({dim})"}


def _agreed(
    local: list[int], whole: list[int], words: dict[str, str], topology: Topology
) -> tuple[dict[str, str], str | None]:
    """Attributes and shapes together; or a reason why they do not settle it."""
    tp = topology.size["tp"]
    if local == whole:
        if words:
            return {}, "it says that it is cut, and has the shape of the reference's whole"
        return {}, None
    cut = [d for d in range(len(local)) if _cut(local, whole, d, tp)]
    if tp == 1 or len(cut) != 1:
        return {}, f"shape {local} is no part of the reference's {whole} that is known"
    if not words:
        return {"tp": f"Shard({cut[0]})"}, None
    if f"({cut[0]}" not in words["tp"]:
        return {}, f"it says that it is cut otherwise than {local} is cut from {whole}"
    return words, None


def _cut(local: list[int], whole: list[int], dim: int, parts: int) -> bool:
    if len(local) != len(whole):
        return False
    return [n * parts if d == dim else n for d, n in enumerate(local)] == whole


def is_distributed_tensor(value: Any) -> bool:
    """Without importing what the user's program may not have."""
    return any(cls.__name__ == "DTensor" for cls in type(value).__mro__)
