"""Collectives in the form that megatron-core calls them and gloo does not accept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist


def install() -> None:
    """Replaces `all_gather` and `all_to_all_single`. To be called once."""
    equal_all_gather, integer_all_to_all = dist.all_gather, dist.all_to_all_single

    def all_gather(
        outputs: list[torch.Tensor],
        tensor: torch.Tensor,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        """Gathers pieces of different sizes too: gloo wants equal ones, so each is broadcast."""
        if len({output.shape for output in outputs}) <= 1:
            return equal_all_gather(outputs, tensor, group=group, async_op=async_op)
        mine = dist.get_rank(group)
        for owner, output in enumerate(outputs):
            piece = tensor.contiguous() if owner == mine else torch.empty_like(output)
            dist.broadcast(piece, dist.get_global_rank(group, owner), group=group)
            output.copy_(piece)
        return None

    def all_to_all_single(
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_split_sizes: Iterable[Any] | None = None,
        input_split_sizes: Iterable[Any] | None = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        """Accepts split sizes that are elements of tensors: gloo wants plain integers."""
        sizes = [
            None if split is None else [int(size) for size in split]
            for split in (output_split_sizes, input_split_sizes)
        ]
        return integer_all_to_all(output, tensor, *sizes, group=group, async_op=async_op)

    dist.all_gather, dist.all_to_all_single = all_gather, all_to_all_single
