"""Which part of each parameter's gradient this rank owns under Megatron's distributed optimizer.

Gradients lie in contiguous buffers, cut into buckets; a bucket is reduce-scattered, and rank r of W
owns the r-th of W equal parts of it. Where a parameter's gradient lies in its bucket is seen in
memory: what the optimizer believes about it may be what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ttrace.adapters.megatron.model import Model

# Flat half-open range of the local parameter's elements, in row-major order.
Range = tuple[int, int]


def own_ranges(model: Model) -> dict[int, Range]:
    """By id of the parameter; without those of which this rank owns nothing."""
    found = {}
    for wrapped in model.wrapped:
        for name, dims in (
            ("bucket_groups", ("dp", "cp")),
            ("expert_parallel_bucket_groups", ("edp",)),
        ):
            ranks, rank = model.topology.place_in(*dims)
            for group in getattr(wrapped, name, ()):
                for bucket in group.buckets:
                    found.update(_of_bucket(bucket, ranks, rank))
    return found


def _of_bucket(bucket: Any, ranks: int, rank: int) -> Iterator[tuple[int, Range]]:
    part = bucket.grad_data.numel() // ranks
    for parameter in bucket.params_list:
        at = _offset(parameter.main_grad, bucket.grad_data)
        begin, end = max(0, part * rank - at), min(parameter.numel(), part * (rank + 1) - at)
        if begin < end:
            yield id(parameter), (begin, end)


def _offset(inner: torch.Tensor, outer: torch.Tensor) -> int:
    """In elements."""
    return (inner.data_ptr() - outer.data_ptr()) // outer.element_size()
