"""Faults of what an optimizer's step computes with: one group of parameters, one step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from mutation.census import Census, Draw, Site
from mutation.course import Course
from mutation.perturb import SizeOfError


class Settings:
    """The groups of all optimizers of this rank, in their order."""

    def __init__(
        self, optimizer: Any, names: dict[int, str], course: Course, census: Census
    ) -> None:
        """`names`: of parameters and of their fp32 copies, by id."""
        self.draw: Draw | None = None
        self.size = SizeOfError()
        self._optimizer, self._names, self._course = optimizer, names, course
        for index, _ in enumerate(self._groups()):
            census.add(Site("optimizer", f"group {index}", "setting"))
        optimizer.step = self._step(optimizer.step)

    def begin_run(self) -> None:
        self.size = SizeOfError()

    def _groups(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(optimizer, group): a chained optimizer has several."""
        for part in getattr(self._optimizer, "chained_optimizers", [self._optimizer]):
            for group in part.optimizer.param_groups:
                yield part, group

    def parameters(self) -> list[str]:
        """Whose step is at fault, of what this rank steps. Clipping is of all groups at once, of
        all optimizers that share a configuration."""
        assert self.draw is not None
        part, own = self._drawn()
        groups = [own]
        if self.draw.mutant.mechanism == "clip":
            groups = [group for other, group in self._groups() if other.config is part.config]
        found = [self._names.get(id(p)) for group in groups for p in group["params"]]
        return [name for name in found if name is not None]

    def _drawn(self) -> tuple[Any, dict[str, Any]]:
        assert self.draw is not None
        return list(self._groups())[int(self.draw.site.fqn.split()[1])]

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            if self.draw is None or self.draw.site.kind != "setting":
                return original(*args, **kwargs)
            put_back = self._change()
            try:
                return original(*args, **kwargs)
            finally:
                put_back()

        return step

    def _change(self) -> Callable[[], None]:
        assert self.draw is not None
        name = self.draw.mutant.mechanism
        part, group = self._drawn()
        right = part.config.clip_grad if name == "clip" else group[name]
        wrong = changed(name, right, self.draw.mutant.size) if self.draw.holds else right
        self.size.add(_numbers(wrong), _numbers(right))
        if name == "clip":
            part.config.clip_grad = wrong
            return functools.partial(setattr, part.config, "clip_grad", right)
        group[name] = wrong
        return functools.partial(group.__setitem__, name, right)


def changed(name: str, right: Any, size: float) -> Any:
    """Another value that is one of this setting. A decay of nothing is one of `size`."""
    if name == "betas":  # below 1
        return (right[0] / (1 + size), right[1])
    return right * (1 + size) if right else size


def _numbers(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)
