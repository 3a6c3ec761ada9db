"""Buckets of gradients and parameters: when their communication begins, and what a rank owns of
them.

Gradients are reduced after the last backward or, with overlap, within it: a fault of a gradient
before its reduction is put there when the reduction begins. The distributed optimizer reduces and
steps a part of each bucket on each rank, and gathers the parameters after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mutation.course import Course


class Buckets:
    """Those of all chunks, which are Megatron's DistributedDataParallel."""

    def __init__(
        self, chunks: list[Any], course: Course, before_reduction: Callable[[list[Any]], None]
    ) -> None:
        """`before_reduction` is given the parameters whose gradients are reduced next."""
        self._course, self._before_reduction = course, before_reduction
        self._owned: dict[int, slice] = {}  # id of a parameter -> of its flat gradient
        for number, group in enumerate(_groups(chunks)):
            group.start_grad_sync = self._reduction(group, f"bucket {number}")
            if group.ddp_config.use_distributed_optimizer:
                group.start_param_sync = self._gather(group, f"bucket {number}")
                for bucket in group.buckets:
                    self._divide(bucket, group)

    def owned(self, parameter: Any) -> slice:
        """What this rank reduces and steps, of the parameter's values in a row: all of them
        without a distributed optimizer."""
        return self._owned.get(id(parameter), slice(0, parameter.numel()))

    def _divide(self, bucket: Any, group: Any) -> None:
        size = bucket.grad_data.numel() // group.intra_distributed_optimizer_instance_size
        first = size * group.intra_distributed_optimizer_instance_rank
        start = bucket.grad_data.storage_offset() + first
        for parameter in bucket.params_list:
            begin = start - parameter.main_grad.storage_offset()
            count = parameter.numel()
            own = slice(min(max(begin, 0), count), min(max(begin + size, 0), count))
            self._owned[id(parameter)] = own

    def _reduction(self, group: Any, name: str) -> Callable[..., Any]:
        original = group.start_grad_sync

        @functools.wraps(original)
        def start_grad_sync(*args: Any, **kwargs: Any) -> Any:
            if not self._course.active:
                return original(*args, **kwargs)
            with self._course.within("finalize"), self._course.named(name):
                # With a reduction under way this call is a repetition.
                if group.grad_reduce_handle is None:
                    self._before_reduction([p for b in group.buckets for p in b.params_list])
                return original(*args, **kwargs)

        return start_grad_sync

    def _gather(self, group: Any, name: str) -> Callable[..., Any]:
        original = group.start_param_sync

        @functools.wraps(original)
        def start_param_sync(*args: Any, **kwargs: Any) -> Any:
            # With overlap it belongs to the step before, and happens where a tool may have replaced
            # the parameters since: no fault can be put there that is that step's.
            phase = None if group.ddp_config.overlap_param_gather else self._course.phase
            with self._course.within(phase), self._course.named(name):
                return original(*args, **kwargs)

        return start_param_sync


def _groups(chunks: list[Any]) -> Iterator[Any]:
    for chunk in chunks:
        yield from chunk.bucket_groups
        yield from chunk.expert_parallel_bucket_groups


def stepped(optimizer: Any) -> Iterator[tuple[Any, Any, torch.Tensor]]:
    """(optimizer, parameter, the part of it that is stepped here) of distributed optimizers: in
    full precision a view into the parameter, else a part of a master copy."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        for parameter, place in getattr(part, "model_param_group_index_map", {}).items():
            group, order = place
            yield part, parameter, part.optimizer.param_groups[group]["params"][order]
