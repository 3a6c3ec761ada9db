"""Copies of values that objects keep, and putting values back in place, as others may hold them."""

from __future__ import annotations

import copy
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ttrace.capture.tensor_bytes import bitwise_equal

SIMPLE = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_LARGEST_CONTAINER = 4096
_DEPTH = 3


@dataclass(frozen=True)
class _GeneratorState:
    """Others hold the generator, too: it stays, and gets its state back."""

    generator: Any
    state: Any
    set: Callable[[Any], None]

    @staticmethod
    def of(value: Any) -> _GeneratorState | None:
        """None: it is no generator of torch, Python or numpy."""
        if isinstance(value, torch.Generator):
            return _GeneratorState(value, value.get_state(), value.set_state)
        if isinstance(value, random.Random):
            return _GeneratorState(value, value.getstate(), value.setstate)
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and isinstance(value, numpy.RandomState):
            return _GeneratorState(value, value.get_state(), value.set_state)
        if numpy is not None and isinstance(value, numpy.Generator):
            bits = value.bit_generator
            return _GeneratorState(value, bits.state, partial(setattr, bits, "state"))
        return None

    def put_back(self) -> Any:
        self.set(self.state)
        return self.generator


def copied(value: Any, depth: int = 0) -> Any:
    """Copies tensors and plain containers; everything else is taken as it is. A parameter is
    structure, wherever it lies: a recurrent module has a list of its own."""
    if isinstance(value, torch.nn.Parameter):
        return value
    if torch.is_tensor(value):
        return value.detach().clone()
    generator = _GeneratorState.of(value)
    if generator is not None:
        return generator
    if _is_array(value):
        return value.copy()
    if type(value) is set and len(value) <= _LARGEST_CONTAINER:
        return set(value)
    if type(value) is deque and len(value) <= _LARGEST_CONTAINER:
        return deque((copied(item, depth + 1) for item in value), value.maxlen)
    if depth < _DEPTH and type(value) in (list, tuple) and len(value) <= _LARGEST_CONTAINER:
        return type(value)(copied(item, depth + 1) for item in value)
    if depth < _DEPTH and type(value) in _DICTS and len(value) <= _LARGEST_CONTAINER:
        return _with_values(value, lambda item: copied(item, depth + 1))
    return value


def _with_values(value: Any, change: Callable[[Any], Any]) -> Any:
    """A dict of the same class."""
    result = copy.copy(value)
    dict.update(result, {key: change(item) for key, item in value.items()})
    return result


def _is_array(value: Any) -> bool:
    """Of numpy's; one of objects is structure."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


def restored(saved: Any) -> Any:
    """What `copied` was given, from its copy, which stays as it is."""
    if isinstance(saved, _GeneratorState):
        return saved.put_back()
    if type(saved) in (list, tuple):
        return type(saved)(map(restored, saved))
    if _is_array(saved):
        return saved.copy()
    if type(saved) is deque:
        return deque(map(restored, saved), saved.maxlen)
    if type(saved) is set:
        return set(saved)
    if type(saved) in _DICTS:
        return _with_values(saved, restored)
    return copied(saved)


def put_value_back(value: Any, saved: Any) -> Any:
    """The original object with its former content, as others may hold it too."""
    if torch.is_tensor(value):
        if value is not saved and value.shape == saved.shape:
            value.data.copy_(saved)
    elif _is_array(value):
        if value is not saved and value.shape == saved.shape:
            value[...] = saved
    elif type(value) is list and value is not saved:
        value[:] = restored(saved)
    elif type(value) in (*_DICTS, set) and value is not saved:
        value.clear()
        (set if type(value) is set else dict).update(value, restored(saved))
    elif type(value) is deque and value is not saved:
        value.clear()
        value.extend(restored(saved))
    elif isinstance(saved, _GeneratorState):
        saved.put_back()
    return value


def same(a: Any, b: Any) -> bool:
    if a is b and _GeneratorState.of(a) is None:
        return True
    if torch.is_tensor(a) or torch.is_tensor(b):
        return torch.is_tensor(a) and torch.is_tensor(b) and bitwise_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, _GeneratorState):
        return same(a.state, b.state)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, set):
        return a == b
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, SIMPLE):
        return a == b or a != a
    if _is_array(a):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if type(a).__module__ == "numpy":
        return bool((a == b).all())
    return a is b
