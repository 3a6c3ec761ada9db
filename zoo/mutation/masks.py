"""Faults of dropout masks: one for data that need several, or several for copies of one value.

A call at fault draws from a seed of the fault's own. The random state after it is what it would
have been, so that all other masks are right.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mutation.census import Census, Draw, Site, is_of_heads, stage
from mutation.course import Course
from mutation.perturb import SizeOfError


class Masks:
    """Stands before torch's dropout, through which modules and fused functions of Megatron go."""

    def __init__(self, course: Course, census: Census, sequence_parallel: bool) -> None:
        from megatron.core import parallel_state

        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._course, self._census = course, census
        self._sequence_parallel = sequence_parallel
        self._tensor_ranks = parallel_state.get_tensor_model_parallel_world_size()
        self._position = stage()[2]
        self._calls: dict[Any, int] = {}
        nn.functional.dropout = self._wrapped(nn.functional.dropout)

    def begin_run(self) -> None:
        self.size = SizeOfError()
        self._calls.clear()

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def dropout(
            input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> torch.Tensor:
            if not self._course.active or not training or not 0.0 < p < 1.0:
                return original(input, p, training, inplace)
            seed = self._seed()
            if seed is None:
                return original(input, p, training, inplace)
            ones = torch.ones_like(input, requires_grad=False)
            right = _mask(ones, p)
            after = torch.get_rng_state()
            torch.default_generator.manual_seed(seed)
            wrong = _mask(ones, p)
            torch.default_generator.manual_seed(seed)
            result = original(input, p, training, inplace)
            torch.set_rng_state(after)
            self.size.add(wrong, right)
            return result

        return dropout

    def _seed(self) -> int | None:
        """Of the call that begins; None: it is not at fault."""
        course = self._course
        fqn, micro_batch = course.module, course.micro_batch
        key = (fqn, micro_batch, course.recomputing)
        ordinal = self._calls.get(key, 0)
        self._calls[key] = ordinal + 1
        if course.iteration == 0:
            if micro_batch == 0:
                self._census.add(self._site(fqn, ordinal))
            return None
        draw = self.draw
        if draw is None or draw.site.kind != "mask":
            return None
        site = self._site(fqn, ordinal)
        if site not in (draw.site, draw.partner):
            return None
        return mask_seed(draw, site, micro_batch, self._position, self._tensor_ranks)

    def _site(self, fqn: str, ordinal: int) -> Site:
        site = Site("forward", fqn, "mask", "", 1, ordinal)
        if self._tensor_ranks > 1 and (self._sequence_parallel or is_of_heads(site)):
            return Site("forward", fqn, "mask", "tp", self._tensor_ranks, ordinal)
        return site


def mask_seed(
    draw: Draw, site: Site, micro_batch: int, position: int, tensor_ranks: int
) -> int | None:
    """What a rank draws a mask from: everything that must tell masks apart, less what the fault
    leaves out. Without context parallelism a place is (data, tensor)."""
    mechanism, everywhere = draw.mutant.mechanism, draw.mutant.ranks == "all"
    parts = tensor_ranks if site.group == "tp" else 1
    data, part = position // tensor_ranks, position % tensor_ranks % parts
    of_holder = draw.holder // tensor_ranks, draw.holder % tensor_ranks % parts
    place: tuple[Any, ...] = (site.fqn, site.ordinal, micro_batch, data, part)
    at_fault = (data, part) == of_holder
    if mechanism == "data":
        place = (site.fqn, site.ordinal, micro_batch, part)
        at_fault = part == of_holder[1]
    elif mechanism == "parts":
        place = (site.fqn, site.ordinal, micro_batch, data)
        at_fault = data == of_holder[0]
    elif mechanism == "layers":
        place = (micro_batch, data, part)
    elif mechanism == "micro_batches":
        place = (site.fqn, site.ordinal, data, part)
    elif mechanism == "copies":
        place = (site.fqn, site.ordinal, micro_batch, position)
        at_fault = position == draw.holder
    if not (everywhere or at_fault):
        return None
    return random.Random(f"{draw.mutant.seed} {place}").randrange(1 << 60)


def _mask(ones: torch.Tensor, p: float) -> torch.Tensor:
    return (torch.dropout(ones, p, True) != 0).double()
