"""What an iteration changes beside gradients, so that it can be run again and put back.

(a) random states of torch, CUDA, numpy and Python, and what the adapter adds (Megatron's trackers,
which hold states, or generators where graphs are captured);
(b) gradient buffers, the adapter's; (c) buffers of modules, copied in place; (d) attributes
(`kept_values.py`) of the objects that the adapter names (modules, gradient buckets, the
configuration); (e) globals of the framework, through functions that the adapter gives. (f)
Parameters are never written by a leg.

The difference of two snapshots is the self-check: an attribute that a leg changed and the restore
did not put back is reported as a leak.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ttrace.capture.kept_values import SIMPLE, copied, put_value_back, restored, same

# Structure, not state: parameters, children and hooks of a module, and the framework's tables.
_STRUCTURE = ("_parameters", "_modules", "_buffers")
_NOTHING = object()


@dataclass(frozen=True)
class GlobalState:
    """A piece of state outside any object: read it, put it back."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], None]


@dataclass(frozen=True)
class Watched:
    """An object whose simple attributes a leg may change."""

    name: str
    target: Any
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """Something that a leg may have changed, and how it is put back."""

    name: str
    put_back: Callable[[], None]


@torch.no_grad()
def put_back(parts: Iterable[Part]) -> list[str]:
    """Each part by itself: one that fails keeps no other from being put back. Returns what failed,
    with the reason."""
    failures = []
    for part in parts:
        try:
            part.put_back()
        except Exception as error:
            failures.append(f"{part.name} ({type(error).__name__}: {error})")
    return failures


def random_states() -> list[GlobalState]:
    """The generators that every program may use."""
    states = [
        GlobalState("torch", torch.get_rng_state, torch.set_rng_state),
        GlobalState("python", random.getstate, random.setstate),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(
            GlobalState("cuda", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
        )
    try:
        import numpy
    except ImportError:
        return states
    states.append(GlobalState("numpy", numpy.random.get_state, numpy.random.set_state))
    return states


class Snapshot:
    """The state of named objects and globals at one moment."""

    def __init__(self, watched: Iterable[Watched], globals_: Iterable[GlobalState]) -> None:
        self._watched = list(watched)
        self._globals = [(state, copied(state.get())) for state in globals_]
        self._attributes = [_attributes(item) for item in self._watched]
        self._buffers = [
            {name: (tensor, copied(tensor)) for name, tensor in _buffers(item.target).items()}
            for item in self._watched
        ]

    def restore(self) -> list[str]:
        """Puts everything back as it was, tensors and containers in place. Returns what could not
        be put back, and why."""
        return put_back(self.parts())

    def parts(self) -> Iterator[Part]:
        for state, saved in self._globals:
            yield Part(state.name, partial(_set_global, state, saved))
        for item, attributes, buffers in zip(
            self._watched, self._attributes, self._buffers, strict=True
        ):
            for name, (tensor, saved) in buffers.items():
                put = partial(_put_buffer_back, item.target, name, tensor, saved)
                yield Part(f"{item.name}.{name}", put)
            yield Part(item.name, partial(_remove_new_attributes, item, attributes.keys()))
            for name, (value, saved) in attributes.items():
                put = partial(_put_attribute_back, item.target, name, value, saved)
                yield Part(f"{item.name}.{name}", put)

    def difference(self, other: Snapshot, *, globals_too: bool = True) -> list[str]:
        """Names of what differs, "object.attribute", sorted."""
        found = []
        for index, item in enumerate(self._watched):
            mine, theirs = self._attributes[index], other._attributes[index]
            for name in mine.keys() | theirs.keys():
                if name not in mine or name not in theirs:
                    found.append(f"{item.name}.{name}")
                elif not same(mine[name][1], theirs[name][1]):
                    found.append(f"{item.name}.{name}")
            buffers, others = self._buffers[index], other._buffers[index]
            for name, (_, saved) in buffers.items():
                if name not in others or not same(saved, others[name][1]):
                    found.append(f"{item.name}.{name}")
        states = zip(self._globals, other._globals, strict=True) if globals_too else ()
        for (state, mine), (_, theirs) in states:
            if not same(mine, theirs):
                found.append(state.name)
        return sorted(found)


def _set_global(state: GlobalState, saved: Any) -> None:
    state.set(restored(saved))


def _put_buffer_back(
    target: Any, name: str, tensor: torch.Tensor | None, saved: torch.Tensor | None
) -> None:
    target._buffers[name] = tensor
    if tensor is not None:
        tensor.copy_(saved)


def _remove_new_attributes(item: Watched, known: Collection[str]) -> None:
    now = vars(item.target)
    for name in [name for name in now if _is_state(item, name, now[name])]:
        if name not in known and isinstance(now[name], SIMPLE):
            del now[name]


def _put_attribute_back(target: Any, name: str, value: Any, saved: Any) -> None:
    if vars(target).get(name, _NOTHING) is value and same(value, saved):
        return
    vars(target)[name] = put_value_back(value, saved)


def _is_state(item: Watched, name: str, value: Any) -> bool:
    return (
        name not in _STRUCTURE
        and name not in item.skip
        and not name.endswith("_hooks")
        and not isinstance(value, torch.nn.Module)
        and not callable(value)
    )


def _attributes(item: Watched) -> dict[str, tuple[Any, Any]]:
    """name -> (the object itself, a copy of its value)."""
    return {
        name: (value, copied(value))
        for name, value in vars(item.target).items()
        if _is_state(item, name, value)
    }


def _buffers(target: Any) -> dict[str, torch.Tensor | None]:
    return dict(target._buffers) if isinstance(target, torch.nn.Module) else {}
