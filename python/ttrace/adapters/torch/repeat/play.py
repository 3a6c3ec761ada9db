"""Makes the recorded calls again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ttrace.adapters.torch.repeat.ambient import as_before
from ttrace.adapters.torch.repeat.gradient_starts import set_start
from ttrace.adapters.torch.repeat.kept_step import KeptStep
from ttrace.adapters.torch.repeat.tape import Event, Given, Kind, Slot, version_of
from ttrace.capture.nested import mapped, tensors_in


class NotTheSame(RuntimeError):
    """What is made again is not what was made."""


def play(
    events: Sequence[Event],
    leaves: Mapping[int, torch.Tensor],
    *,
    alone: Callable[[], None],
    reduce: Callable[[], None],
    give_out: Callable[[Any, bool], None],
    step: Callable[[KeptStep], list[torch.Tensor]],
    autocast: bool,
    in_place_of: Mapping[int, torch.Tensor],
) -> None:
    """All of them, in order. `leaves`: by id, those whose gradients backwards add to. `alone()` is
    called before each forward and backward, `reduce()` after a backward whose gradients
    DistributedDataParallel reduced. `give_out(of, unscaled)` is called where gradients are
    complete, and `step(kept)` where an optimizer steps; it returns what was stepped. `in_place_of`:
    other tensors for some of the leaves, and for some that calls are given, by id."""
    values: dict[int, Any] = {}

    def given(reference: Any) -> Any:
        if isinstance(reference, Slot):
            return values[reference.number]
        tensor = reference.tensor
        if id(tensor) in in_place_of:
            return in_place_of[id(tensor)]
        if reference.version >= 0 and version_of(tensor) != reference.version:
            raise NotTheSame(f"{event.name}: the loop has changed a tensor that it is given")
        if event.kind is Kind.MODEL and reference.version >= 0 and not tensor.requires_grad:
            return tensor.clone()  # which the model may change
        return tensor

    with as_before(autocast) as surroundings:
        for event in events:
            if event.kind is Kind.GIVEN_OUT:
                give_out(*event.args)
                continue
            for key, wants in event.wants.items():
                if key in in_place_of and in_place_of[key].requires_grad is not wants:
                    in_place_of[key].requires_grad_(wants)
            args, kwargs = mapped(event.args, given, _is_reference)
            if event.starts is not None:
                for key, start in event.starts.items():
                    set_start(in_place_of.get(key, leaves[key]), start)
            if event.kind in (Kind.MODEL, Kind.BACKWARD):
                alone()
            with surroundings.of(event.ambient):
                if event.kind is Kind.STEP:
                    result = step(event.step)
                else:
                    result = event.function(*args, **kwargs)
            if event.kind is Kind.COLLECTIVE and hasattr(result, "wait"):
                result.wait()
            if event.reduces:
                reduce()
            if event.kind is Kind.BACKWARD:
                made = [in_place_of.get(key, leaves[key]).grad for key in event.leaves]
            else:
                made = tensors_in(result)
            if len(made) != len(event.makes):
                raise NotTheSame(f"{event.name} has another number of results")
            values.update(zip(event.makes, made, strict=True))
            for slot, read in event.kept.items():
                values[slot] = read()


def _is_reference(value: Any) -> bool:
    return isinstance(value, Slot | Given)
