"""Faults of a module's output, of the gradient of its input, and of the weights that it uses.

`forward` itself is replaced on each module, so that hooks of others, which run around it, see the
fault as the module's own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import nn

from mutation.census import Census, Draw, Site
from mutation.course import Course
from mutation.faults import faulty
from mutation.perturb import FaultyGradient, SizeOfError
from mutation.routes import rerouted

# They hand on what they are given, so that a fault of theirs would be their neighbour's.
_TRANSPARENT = ("IdentityOp", "IdentityFuncOp", "Dropout", "ModuleList")


def global_names(model: nn.Module) -> dict[str, str]:
    """Name of a module of this chunk -> the same with layers counted over all stages, and experts
    over all ranks that share them."""
    names = {}
    first_expert = _first_expert(model)
    for name, _ in model.named_modules():
        found = re.match(r"(decoder\.layers\.)(\d+)(.*)", name)
        if found:
            layer = model.get_submodule(found[1] + found[2])
            rest = re.sub(
                r"(\.local_experts\.)(\d+)", lambda m: f"{m[1]}{int(m[2]) + first_expert}", found[3]
            )
            names[name] = f"{found[1]}{layer.layer_number - 1}{rest}"
        else:
            names[name] = name
    return names


def _first_expert(model: nn.Module) -> int:
    experts = getattr(model.config, "num_moe_experts", None) or 0
    ranks = parallel_state.get_expert_model_parallel_world_size()
    return parallel_state.get_expert_model_parallel_rank() * experts // ranks


class Modules:
    """The modules of this rank's chunks of the model."""

    def __init__(self, chunks: list[nn.Module], course: Course, census: Census) -> None:
        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._course, self._census = course, census
        self._saved: list[tuple[nn.Parameter, torch.Tensor]] = []
        for chunk in chunks:
            for name, fqn in global_names(chunk).items():
                module = chunk.get_submodule(name)
                kind = type(module).__name__
                # Only the last chunk's block and model put out what the whole model does.
                shown = kind not in _TRANSPARENT and (
                    chunk.post_process or (fqn != "" and kind != "TransformerBlock")
                )
                module.forward = self._wrapped(module, fqn, shown)

    def begin_run(self) -> None:
        self.size = SizeOfError()

    def end_run(self) -> None:
        """Puts the weights back."""
        for parameter, saved in self._saved:
            parameter.data.copy_(saved)
        self._saved.clear()

    def _wrapped(self, module: nn.Module, fqn: str, shown: bool) -> Callable[..., Any]:
        original, course = module.forward, self._course

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not course.active:
                return original(*args, **kwargs)
            course.modules.append(fqn)
            if not shown:
                # Chunks have blocks of one name: a fault of the last one's is no other's.
                try:
                    return original(*args, **kwargs)
                finally:
                    course.modules.pop()
            try:
                if course.iteration == 0:
                    self._count_inputs(module, fqn, args, kwargs)
                if self._is("weight", fqn):
                    self._change_weight(module)
                if self._is("grad_input", fqn) and torch.is_grad_enabled():
                    args, kwargs = self._with_faulty_gradient(args, kwargs)
                output = original(*args, **kwargs)
                if course.iteration == 0:
                    self._count_output(fqn, output)
                    self._count_route(module, fqn)
                if self._is("output", fqn):
                    output = self._changed(output)
                if self._is("route", fqn):
                    output = self._rerouted(output)
                return output
            finally:
                course.modules.pop()

        return forward

    def _is(self, kind: str, fqn: str) -> bool:
        draw = self.draw
        return (
            draw is not None
            and draw.site.kind == kind
            and draw.site.fqn == fqn
            and (kind == "weight" or draw.hits(self._course.micro_batch))
        )

    def _count_inputs(self, module: nn.Module, fqn: str, args: Any, kwargs: Any) -> None:
        if any(p is not None for p in module._parameters.values()):
            self._census.add(Site("forward", fqn, "weight"))
        given = [value for value in (*args, *kwargs.values()) if _has_gradient(value)]
        if given:
            site = Site("backward", fqn, "grad_input")
            self._census.add(site)
            given[0].register_hook(functools.partial(self._census.weigh, site))

    def _count_route(self, module: nn.Module, fqn: str) -> None:
        if type(module).__name__ == "TopKRouter":
            self._census.add(Site("forward", fqn, "route"))

    def _count_output(self, fqn: str, output: Any) -> None:
        finished = self._census.modules.setdefault(self._course.chunk, [])
        if fqn not in finished:
            finished.append(fqn)
        first = output[0] if isinstance(output, tuple) else output
        if torch.is_tensor(first) and first.is_floating_point():
            site = Site("forward", fqn, "output")
            self._census.add(site)
            self._census.weigh(site, first)

    def _perturb(self, value: torch.Tensor) -> torch.Tensor:
        assert self.draw is not None
        wrong = faulty(value, self.draw, self._course.run, dist.get_rank())
        self.size.add(wrong, value)
        return wrong

    def _changed(self, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        # Added, so that the gradient is that of the right value: one fault at a time.
        wrong = first + (self._perturb(first) - first.detach())
        return (wrong, *output[1:]) if isinstance(output, tuple) else wrong

    def _rerouted(self, output: Any) -> Any:
        assert self.draw is not None
        right, chosen = output
        if not self.draw.holds:
            self.size.add(right, right)
            return output
        wrong, to = rerouted(right, chosen, self.draw.mutant.mechanism)
        self.size.add(wrong, right)
        return wrong, to

    def _with_faulty_gradient(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        args = list(args)
        for index, value in enumerate(args):
            if _has_gradient(value):
                args[index] = FaultyGradient.apply(value, self._perturb)
                return tuple(args), kwargs
        for name, value in kwargs.items():
            if _has_gradient(value):
                return args, {**kwargs, name: FaultyGradient.apply(value, self._perturb)}
        return args, kwargs

    def _change_weight(self, module: nn.Module) -> None:
        """Before the first use in this call of the schedule, and for all of it: after whatever
        wrote to it when the module was called."""
        if self._saved:
            return
        parameter = next(p for p in module._parameters.values() if p is not None)
        self._saved.append((parameter, parameter.data.clone()))
        parameter.data.copy_(self._perturb(parameter.data))


def _has_gradient(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point() and value.requires_grad
