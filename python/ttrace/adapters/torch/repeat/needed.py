"""Which of the recorded calls lead to the gradients of a step: the others are not made again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ttrace.adapters.torch.repeat.tape import Event, Kind
from ttrace.capture.nested import mapped


def needed(events: Sequence[Event], memory: Sequence[int], gradients: Iterable[int]) -> list[Event]:
    """In order. `memory`: of each slot its number. `gradients`: slots of what the step will find.
    All forwards and backwards are needed: a model may change its own state in a forward of which
    nothing is used. A step is, if the model runs after it, and with it what was done to the
    gradients that it finds, and to the parameters since."""
    slots = set(gradients)
    memories = {memory[slot] for slot in slots}
    stepped = {memory[slot] for e in events if e.kind is Kind.STEP for slot in e.makes}
    found: list[Event] = []
    for event in reversed(events):
        if event.kind is Kind.MODEL:
            memories |= stepped
        if not (
            event.kind in (Kind.MODEL, Kind.BACKWARD, Kind.GIVEN_OUT)
            or (event.kind is Kind.STEP and memories.intersection(memory[s] for s in event.makes))
            or event.name == "__set__"
            or slots.intersection(event.makes)
            or memories.intersection(memory[slot] for slot in event.changes)
        ):
            continue
        found.append(event)
        slots.update(event.takes)
        memories.update(memory[slot] for slot in event.takes)
    found.reverse()
    return found


def takes_number(events: Iterable[Event], numbers: Collection[float]) -> bool:
    """Whether one of them is given one of these numbers."""
    found: list[Any] = []
    for event in events if numbers else ():
        mapped(event.args, lambda number: (found.append(number), number)[1], _is_number)
    return any(float(number) in numbers for number in found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
