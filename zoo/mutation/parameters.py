"""Faults of a parameter's gradient, before or after reduction, and of its update."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from mutation.census import Census, Draw, Site
from mutation.course import Course
from mutation.faults import faulty
from mutation.modules import global_names
from mutation.perturb import SizeOfError


class Parameters:
    """The parameters of this rank's part of the model."""

    def __init__(self, model: Any, course: Course, census: Census, optimizer: Any) -> None:
        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._course, self._census = course, census
        self._parameters: dict[str, Any] = {}
        names = global_names(model)
        for name, parameter in model.named_parameters():
            owner, _, last = name.rpartition(".")
            self._parameters[f"{names[owner]}.{last}"] = parameter
        for fqn in self._parameters:
            census.add(Site("finalize", fqn, "grad_local"))
            census.add(Site("finalize", fqn, "grad_reduced"))
            census.add(Site("optimizer", fqn, "update"))
        config = model.config
        config.finalize_model_grads_func = self._finalize(config.finalize_model_grads_func)
        optimizer.step = self._step(optimizer.step)

    def names(self) -> dict[int, str]:
        """Of parameters and of their copies in fp32, by id."""
        names = {id(parameter): fqn for fqn, parameter in self._parameters.items()}
        for fqn, parameter in self._parameters.items():
            names[id(getattr(parameter, "main_param", parameter))] = fqn
        return names

    def begin_run(self) -> None:
        self.size = SizeOfError()

    def _finalize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def finalize(*args: Any, **kwargs: Any) -> Any:
            with self._course.within("finalize"):
                self._change_gradient("grad_local")
                result = original(*args, **kwargs)
                self._change_gradient("grad_reduced")
                return result

        return finalize

    def _change_gradient(self, kind: str) -> None:
        if self._course.iteration == 0 and self._course.run == 0:
            for fqn, parameter in self._parameters.items():
                self._census.weigh(Site("finalize", fqn, kind), parameter.main_grad)
        draw = self.draw
        if draw is None or draw.site.kind != kind:
            return
        gradient = self._parameters[draw.site.fqn].main_grad
        right = gradient.clone()
        if draw.holds:
            gradient.copy_(faulty(right, draw, self._course.run, dist.get_rank()))
        self.size.add(gradient, right)

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            draw = self.draw
            skipped: list[tuple[torch.Tensor, torch.Tensor]] = []
            if draw is not None and draw.site.kind == "update" and draw.holds:
                parameter = self._parameters[draw.site.fqn]
                # In low precision the update is that of an fp32 copy.
                for held in (parameter, getattr(parameter, "main_param", None)):
                    if held is not None:
                        skipped.append((held, held.detach().clone()))
            with self._course.within("optimizer"):
                result = original(*args, **kwargs)
            for held, before in skipped:
                self.size.add(before, held)
                held.data.copy_(before)
            return result

        return step
