"""Faults of a parameter's gradient, before or after reduction, and of its update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from mutation.buckets import Buckets, stepped
from mutation.census import Census, Draw, Site
from mutation.course import Course
from mutation.faults import faulty
from mutation.modules import global_names
from mutation.perturb import SizeOfError


class Parameters:
    """The parameters of this rank's chunks of the model."""

    def __init__(self, chunks: list[Any], course: Course, census: Census, optimizer: Any) -> None:
        """`chunks` are Megatron's DistributedDataParallel."""
        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._course, self._census, self._optimizer = course, census, optimizer
        self._parameters: dict[str, Any] = {}
        for wrapped in chunks:
            chunk = unwrapped(wrapped)
            names = global_names(chunk)
            for name, parameter in chunk.named_parameters():
                owner, _, last = name.rpartition(".")
                self._parameters[f"{names[owner]}.{last}"] = parameter
        self._names = {id(parameter): fqn for fqn, parameter in self._parameters.items()}
        self._buckets = Buckets(chunks, course, self._before_reduction)
        for fqn, parameter in self._parameters.items():
            census.add(Site("finalize", fqn, "grad_local"))
            owned = self._buckets.owned(parameter)
            if owned.start < owned.stop:
                census.add(Site("finalize", fqn, "grad_reduced"))
                census.add(Site("optimizer", fqn, "update"))
        config = unwrapped(chunks[0]).config  # the same for all chunks
        config.finalize_model_grads_func = self._finalize(config.finalize_model_grads_func)
        optimizer.step = self._step(optimizer.step)

    def names(self) -> dict[int, str]:
        """Of parameters and of what is stepped in their place, by id."""
        names = dict(self._names)
        for fqn, parameter in self._parameters.items():
            copy = getattr(parameter, "main_param", None)
            if copy is not None:
                names[id(copy)] = fqn
        for _, parameter, part in stepped(self._optimizer):
            names[id(part)] = self._names[id(parameter)]
        return names

    def begin_run(self) -> None:
        self.size = SizeOfError()

    def _finalize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def finalize(*args: Any, **kwargs: Any) -> Any:
            with self._course.within("finalize"):
                result = original(*args, **kwargs)
                for fqn in self._parameters:
                    self._change_gradient("grad_reduced", fqn)
                return result

        return finalize

    def _before_reduction(self, parameters: list[Any]) -> None:
        for parameter in parameters:
            self._change_gradient("grad_local", self._names[id(parameter)])

    def _change_gradient(self, kind: str, fqn: str) -> None:
        parameter = self._parameters[fqn]
        gradient = getattr(parameter, "main_grad", None)
        if gradient is None:  # frozen
            return
        owned = self._buckets.owned(parameter)
        if kind == "grad_reduced" and owned != slice(0, parameter.numel()):
            # What lies beside it is no reduced gradient.
            gradient = gradient.view(-1)[owned]
        site = Site("finalize", fqn, kind)
        if self._course.iteration == 0 and self._course.run == 0 and gradient.numel():
            self._census.weigh(site, gradient)
        draw = self.draw
        if draw is None or draw.site != site:
            return
        right = gradient.clone()
        if draw.holds:
            gradient.copy_(faulty(right, draw, self._course.run, dist.get_rank()))
        self.size.add(gradient, right)

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            draw = self.draw
            skipped = draw is not None and draw.site.kind == "update" and draw.holds
            with self._course.within("optimizer"):
                if not skipped:
                    return original(*args, **kwargs)
                assert draw is not None
                parameter = self._parameters[draw.site.fqn]
                for part, its, own in stepped(self._optimizer):
                    if its is parameter:
                        with self._put_back_in_time(part.optimizer, own):
                            return original(*args, **kwargs)
                # In low precision the update is that of an fp32 copy.
                copies = (parameter, getattr(parameter, "main_param", None))
                held = [(copy, copy.detach().clone()) for copy in copies if copy is not None]
                result = original(*args, **kwargs)
                for copy, before in held:
                    self._put_back(copy, before)
                return result

        return step

    def _put_back(self, held: torch.Tensor, before: torch.Tensor) -> None:
        self.size.add(before, held)
        held.data.copy_(before)

    @contextmanager
    def _put_back_in_time(self, inner: Any, own: torch.Tensor) -> Iterator[None]:
        """Before the other ranks are given this rank's part, which follows the inner step."""
        original = inner.step

        def step(*args: Any, **kwargs: Any) -> Any:
            before = own.detach().clone()
            result = original(*args, **kwargs)
            self._put_back(own, before)
            return result

        inner.step = step
        try:
            yield
        finally:
            inner.step = original


def unwrapped(chunk: Any) -> Any:
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk
