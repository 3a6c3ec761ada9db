"""What an iteration changes beside gradients, so that it can be run again and put back.

(a) random states of torch, CUDA, numpy and Python, and what the adapter adds (Megatron's trackers,
which hold states, or generators where graphs are captured);
(b) gradient buffers, the adapter's; (c) buffers of modules, copied in place; (d) simple attributes
of the objects that the adapter names (modules, gradient buckets, the configuration); (e) globals of
the framework, through functions that the adapter gives. (f) Parameters are never written by a leg.

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

from ttrace.capture.tensor_bytes import bitwise_equal

_SIMPLE = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
# Structure, not state: parameters, children and hooks of a module, and the framework's tables.
_STRUCTURE = ("_parameters", "_modules", "_buffers")
_LARGEST_CONTAINER = 4096
_DEPTH = 3
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


@dataclass(frozen=True)
class _GeneratorState:
    """Others hold the generator, too: it stays, and gets its state back."""

    generator: torch.Generator
    state: torch.Tensor

    def put_back(self) -> torch.Generator:
        self.generator.set_state(self.state)
        return self.generator


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
        self._globals = [(state, _copy(state.get())) for state in globals_]
        self._attributes = [_attributes(item) for item in self._watched]
        self._buffers = [
            {name: (tensor, _copy(tensor)) for name, tensor in _buffers(item.target).items()}
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

    def difference(self, other: Snapshot) -> list[str]:
        """Names of what differs, "object.attribute", sorted."""
        found = []
        for index, item in enumerate(self._watched):
            mine, theirs = self._attributes[index], other._attributes[index]
            for name in mine.keys() | theirs.keys():
                if name not in mine or name not in theirs:
                    found.append(f"{item.name}.{name}")
                elif not _same(mine[name][1], theirs[name][1]):
                    found.append(f"{item.name}.{name}")
            buffers, others = self._buffers[index], other._buffers[index]
            for name, (_, saved) in buffers.items():
                if name not in others or not _same(saved, others[name][1]):
                    found.append(f"{item.name}.{name}")
        for (state, mine), (_, theirs) in zip(self._globals, other._globals, strict=True):
            if not _same(mine, theirs):
                found.append(state.name)
        return sorted(found)


def _set_global(state: GlobalState, saved: Any) -> None:
    state.set(_restored(saved))


def _put_buffer_back(
    target: Any, name: str, tensor: torch.Tensor | None, saved: torch.Tensor | None
) -> None:
    target._buffers[name] = tensor
    if tensor is not None:
        tensor.copy_(saved)


def _remove_new_attributes(item: Watched, known: Collection[str]) -> None:
    now = vars(item.target)
    for name in [name for name in now if _is_state(item, name, now[name])]:
        if name not in known and isinstance(now[name], _SIMPLE):
            del now[name]


def _put_attribute_back(target: Any, name: str, value: Any, saved: Any) -> None:
    if vars(target).get(name, _NOTHING) is value and _same(value, saved):
        return
    vars(target)[name] = _put_back(value, saved)


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
        name: (value, _copy(value))
        for name, value in vars(item.target).items()
        if _is_state(item, name, value)
    }


def _buffers(target: Any) -> dict[str, torch.Tensor | None]:
    return dict(target._buffers) if isinstance(target, torch.nn.Module) else {}


def _copy(value: Any, depth: int = 0) -> Any:
    """Copies tensors and plain containers; everything else is taken as it is. A parameter is
    structure, wherever it lies: a recurrent module has a list of its own."""
    if isinstance(value, torch.nn.Parameter):
        return value
    if torch.is_tensor(value):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return _GeneratorState(value, value.get_state())
    if depth < _DEPTH and type(value) in (list, tuple) and len(value) <= _LARGEST_CONTAINER:
        return type(value)(_copy(item, depth + 1) for item in value)
    if depth < _DEPTH and type(value) is dict and len(value) <= _LARGEST_CONTAINER:
        return {key: _copy(item, depth + 1) for key, item in value.items()}
    return value


def _restored(saved: Any) -> Any:
    """What `_copy` was given, from its copy, which stays as it is."""
    if isinstance(saved, _GeneratorState):
        return saved.put_back()
    if type(saved) in (list, tuple):
        return type(saved)(map(_restored, saved))
    if type(saved) is dict:
        return {key: _restored(item) for key, item in saved.items()}
    return _copy(saved)


def _put_back(value: Any, saved: Any) -> Any:
    """The original object with its former content, as others may hold it too."""
    if torch.is_tensor(value):
        if value is not saved and value.shape == saved.shape:
            value.data.copy_(saved)
    elif type(value) is list and value is not saved:
        value[:] = _restored(saved)
    elif type(value) is dict and value is not saved:
        value.clear()
        value.update(_restored(saved))
    elif isinstance(saved, _GeneratorState):
        saved.put_back()
    return value


def _same(a: Any, b: Any) -> bool:
    if a is b and not isinstance(a, torch.Generator):
        return True
    if torch.is_tensor(a) or torch.is_tensor(b):
        return torch.is_tensor(a) and torch.is_tensor(b) and bitwise_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, _GeneratorState):
        return bitwise_equal(a.state, b.state)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, _SIMPLE):
        return a == b or a != a
    if type(a).__module__ == "numpy":
        return bool((a == b).all())
    return a is b
