"""Puts the mutants of a list into their iterations and writes down what each did."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mutation.census import Census, Draw, draw, sent, stage
from mutation.collectives import Collectives
from mutation.course import Course
from mutation.masks import Masks
from mutation.modules import Modules
from mutation.mutant import read_mutants
from mutation.parameters import Parameters, unwrapped
from mutation.settings import Settings

_DIRECTIONS = {"forward": "forward", "backward": "backward", "finalize": "backward"}


class Plant:
    """One per process."""

    def __init__(self, path: str, model: list[Any], optimizer: Any) -> None:
        self._mutants = read_mutants(path)
        self._log = Path(f"{path}.rank-{dist.get_rank()}.jsonl")
        self._log.unlink(missing_ok=True)
        self._census = Census()
        self._draw: Draw | None = None
        self._optimizer = optimizer
        self._chunks = [unwrapped(chunk) for chunk in model]
        self._course = Course(model, self._begin_run, self._end_run)
        self._modules = Modules(self._chunks, self._course, self._census)
        self._collectives = Collectives(self._course, self._census)
        self._parameters = Parameters(model, self._course, self._census, optimizer)
        names = self._parameters.names()
        self._settings = Settings(optimizer, names, self._course, self._census)
        config = self._chunks[0].config
        self._masks = Masks(self._course, self._census, config.sequence_parallel)
        self._parts = (
            self._modules,
            self._collectives,
            self._parameters,
            self._settings,
            self._masks,
        )
        optimizer.step = self._around_step(optimizer.step)

    def _begin_run(self) -> None:
        if self._course.run == 0:
            mutant = self._mutants.get(self._course.iteration)
            self._draw = None if mutant is None else draw(mutant, self._census)
            for part in self._parts:
                part.draw = self._draw
        for part in self._parts:
            part.begin_run()

    def _end_run(self) -> None:
        self._modules.end_run()
        if self._course.iteration == 0:
            self._census.micro_batches = self._course.micro_batches
            if self._course.run == 0:
                self._census.gather()
        if self._draw is not None and self._draw.site.phase != "optimizer":
            self._write(self._course.run)

    def _around_step(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            for part in self._parts:
                part.begin_run()
            kept = []
            if self._course.iteration in self._mutants:
                kept = [(moment, moment.clone()) for moment in _moments(self._optimizer)]
            result = original(*args, **kwargs)
            # The next iteration must not inherit the fault. Weights are the tool's to replace.
            for moment, before in kept:
                moment.copy_(before)
            if self._draw is not None and self._draw.site.phase == "optimizer":
                self._write(0)
            if self._course.iteration == 0:
                for chunk, modules in sorted(self._census.modules.items()):
                    self._append({"stage": stage()[0], "chunk": chunk, "modules": modules})
            self._course.next_iteration()
            return result

        return step

    def _write(self, run: int) -> None:
        found = self._draw
        assert found is not None
        size = max((part.size for part in self._parts), key=lambda size: size.fired)
        if size.fired == 0:
            return
        site = asdict(found.site)
        more: dict[str, Any] = {}
        if site["kind"] == "isend":
            chunk, direction = sent(found.site)
            site["direction"] = direction
            more["ends"] = self._ends(chunk, direction)
        else:
            site["direction"] = _DIRECTIONS.get(site["phase"], "")
        if site["kind"] == "setting":
            more["parameters"] = self._settings.parameters()
        if found.partner is not None:
            more["partner"] = asdict(found.partner)
        if found.share is not None:
            more["share"] = found.share
        self._append(
            {
                **asdict(found.mutant),
                **more,
                "run": run,
                "stage": stage()[0],
                "rank": dist.get_rank(),
                "holds": found.holds,
                "micro_batch": found.micro_batch,
                "fired": size.fired,
                "error": size.error,
                "truth": size.truth,
                "site": site,
            }
        )

    def _ends(self, chunk: int, direction: str) -> list[str]:
        """The layers on both sides of what a chunk sends."""
        numbers = [layer.layer_number - 1 for layer in self._chunks[chunk].decoder.layers]
        after = numbers[-1] + 1 if direction == "forward" else numbers[0]
        return [f"decoder.layers.{number}" for number in (after - 1, after)]

    def _append(self, line: dict[str, Any]) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")


def _moments(optimizer: Any) -> Iterator[torch.Tensor]:
    """What Megatron's optimizer remembers of earlier gradients."""
    for part in getattr(optimizer, "chained_optimizers", [optimizer]):
        for state in part.optimizer.state.values():
            yield from (value for value in state.values() if torch.is_tensor(value))
