"""Tensors inside the values that modules take and return: dicts and what behaves as one, sequences,
dataclasses, graphs of torch-geometric.

A tensor's name is the way to it, joined by dots: argument `batch` that is a dict with the key
`tokens` gives `batch.tokens`; the second item of a returned tuple is `1`.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

_DEPTH = 4
# Steps of all rows in an order of their lengths: what a value belongs to hangs on the other rows of
# the micro-batch.
_UNPLACEABLE = (PackedSequence,)


def named_tensors(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in `value`, which is called `name`. A bare tensor has the name itself."""
    if torch.is_tensor(value):
        yield name, value
    elif depth < _DEPTH:
        for key, item in _items(value):
            yield from named_tensors(item, f"{name}.{key}" if name else key, depth + 1)


def named(value: Any) -> bool:
    """Whether there is a tensor in `value`."""
    return next(named_tensors(value, ""), None) is not None


def outputs(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What a module returned: a bare tensor is "0", others are named by index, key or field."""
    yield from named_tensors(value, "0" if torch.is_tensor(value) else "")


def opaque(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """(name, class) of objects that hold tensors and are none of the above: nothing in them is
    seen."""
    if isinstance(value, torch.nn.Module):
        return
    if isinstance(value, _UNPLACEABLE):
        yield name, type(value).__name__
        return
    pairs = list(_items(value))
    if not pairs:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict) and not torch.is_tensor(value) and _holds_tensor(held.values()):
            yield name, type(value).__name__
    elif depth < _DEPTH:
        for key, item in pairs:
            yield from opaque(item, f"{name}.{key}" if name else key, depth + 1)


def with_replaced(
    value: Any, name: str, replaced: Mapping[str, torch.Tensor], depth: int = 0
) -> Any:
    """The same structure with other tensors at some names; `value` itself is not changed."""
    if torch.is_tensor(value):
        return replaced.get(name, value)
    if depth >= _DEPTH or not any(_within(key, name) for key in replaced):
        return value

    def changed_item(key: str, item: Any) -> Any:
        return with_replaced(item, f"{name}.{key}" if name else key, replaced, depth + 1)

    if is_keyed(value):
        return with_items(value, changed_item)
    changed = {key: changed_item(key, item) for key, item in _items(value)}
    if isinstance(value, list | tuple):
        items = list(changed.values())
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if _is_dataclass(value):
        result = copy.copy(value)
        for key, item in changed.items():
            object.__setattr__(result, key, item)
        return result
    return value


def mapped(
    value: Any,
    change: Callable[[Any], Any],
    is_leaf: Callable[[Any], bool] = torch.is_tensor,
    depth: int = 0,
) -> Any:
    """The same structure with `change(leaf)` in place of each leaf, at any name, in order. What
    holds no leaf that was changed stays the object that it is."""
    if is_leaf(value):
        return change(value)
    if depth >= _DEPTH:
        return value
    changed = {k: mapped(v, change, is_leaf, depth + 1) for k, v in _items(value)}
    if all(changed[key] is item for key, item in _items(value)):
        return value
    if is_keyed(value):
        return with_items(value, lambda key, _: changed[key])
    if isinstance(value, list | tuple):
        items = list(changed.values())
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    result = copy.copy(value)
    for key, item in changed.items():
        object.__setattr__(result, key, item)
    return result


def tensors_in(value: Any) -> list[torch.Tensor]:
    """In the order in which `mapped` comes to them."""
    found: list[torch.Tensor] = []

    def see(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    mapped(value, see)
    return found


def is_keyed(value: Any) -> bool:
    """Whether it holds its items by key."""
    return isinstance(value, MutableMapping) or _is_graph(value)


def with_items(value: Any, changed: Callable[[str, Any], Any]) -> Any:
    """A copy of what holds its items by key, of the same class and with the same attributes, with
    other items."""
    result = copy.copy(value)
    for key, item in list(keyed_items(value)):
        result[key] = changed(str(key), item)
    return result


def keyed_items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Of what `is_keyed`."""
    yield from (value.to_dict() if _is_graph(value) else value).items()


def _is_graph(value: Any) -> bool:
    graphs = sys.modules.get("torch_geometric.data")
    return graphs is not None and isinstance(value, graphs.Data)


def _within(key: str, name: str) -> bool:
    return not name or key == name or key.startswith(f"{name}.")


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _UNPLACEABLE):
        return
    if is_keyed(value):
        yield from ((str(key), item) for key, item in keyed_items(value))
    elif isinstance(value, list | tuple):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif _is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name, None)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _holds_tensor(values: Any) -> bool:
    return any(
        torch.is_tensor(item)
        or (isinstance(item, list | tuple) and any(torch.is_tensor(part) for part in item))
        for item in values
    )
