"""The functions of torch.distributed by which ranks exchange tensors, wrapped to be listened to.

A wrapper changes nothing: it says what is called, then calls it. It costs one comparison while
nobody listens. A collective that another one is made of is not told apart. Not seen is what does
not go through Python: DistributedDataParallel's reduction, custom kernels, compiled regions.

Imports no torch: torch's modules are patched right after they are executed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ttrace.capture.patches import Patches

C10D = "torch.distributed.distributed_c10d"
FUNCTIONAL = "torch.distributed._functional_collectives"


@dataclass(frozen=True)
class Call:
    """What one rank does in one collective. `tensors` are those it gives, or receives into where
    it gives none."""

    kind: str
    op: str
    members: tuple[int, ...]  # global ranks, sorted; of a send or receive: the two
    tensors: tuple[Any, ...]
    dim: int | None = None  # along which it is gathered, where the call says that


Listener = Callable[[Iterable[Call]], None]
# Is given the function, arguments and keyword arguments, and returns what the function does.
CarryOut = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

# Function -> kind, and the parameter that holds what the rank gives ("" for none).
_COLLECTIVES = {
    "all_reduce": ("all_reduce", "tensor"),
    "all_reduce_coalesced": ("all_reduce", "tensors"),
    "reduce": ("reduce", "tensor"),
    "broadcast": ("broadcast", "tensor"),
    "all_gather": ("all_gather", "tensor"),
    "all_gather_single": ("all_gather", "input_tensor"),
    "all_gather_into_tensor": ("all_gather", "input_tensor"),
    "_all_gather_base": ("all_gather", "input_tensor"),
    "all_gather_coalesced": ("all_gather", "input_tensor_list"),
    "gather": ("gather", "tensor"),
    "scatter": ("scatter", "tensor"),
    "reduce_scatter": ("reduce_scatter", "input_list"),
    "reduce_scatter_single": ("reduce_scatter", "input"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "_reduce_scatter_base": ("reduce_scatter", "input"),
    "all_to_all": ("all_to_all", "input_tensor_list"),
    "all_to_all_single": ("all_to_all", "input"),
    "barrier": ("barrier", ""),
    "monitored_barrier": ("barrier", ""),
    # Of pickled objects: no elements.
    "all_gather_object": ("all_gather", ""),
    "gather_object": ("gather", ""),
    "broadcast_object_list": ("broadcast", ""),
    "scatter_object_list": ("scatter", ""),
}
_POINT_TO_POINT = {"send": "send", "isend": "send", "recv": "recv", "irecv": "recv"}
# The functional ones, which DTensor uses: what they are given comes first.
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "all_gather_single": "all_gather",
    "all_gather_single_autograd": "all_gather",
    "all_gather_tensor": "all_gather",
    "all_gather_tensor_autograd": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_autograd": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_autograd": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_to_all_single_autograd": "all_to_all",
}
_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")

Read = Callable[[Mapping[str, Any]], Iterable[Call]]


class _Thread(threading.local):
    """How deep this thread is in calls that are not told."""

    unheard = 0


@dataclass(frozen=True, eq=False)
class Listening:
    """Somebody who is told of every call, in its thread and before it is made; until `stop`."""

    listener: Listener
    failed: Callable[[Exception], None]

    def stop(self) -> None:
        """Any number of times."""
        if self in _listening:
            _listening.remove(self)


_thread = _Thread()
_listening: list[Listening] = []
_carrying: list[CarryOut] = []  # the last one makes calls


def listen(listener: Listener, failed: Callable[[Exception], None]) -> Listening:
    """From now on tells `listener`. What goes wrong in that goes to `failed`."""
    listening = Listening(listener, failed)
    _listening.append(listening)
    return listening


def carry_out(function: CarryOut) -> Callable[[], None]:
    """From now on calls are made by `function`, until what it returns is called; any number of
    times."""
    _carrying.append(function)

    def stop() -> None:
        if function in _carrying:
            _carrying.remove(function)

    return stop


@contextmanager
def unheard() -> Iterator[None]:
    """Calls of this thread inside are nobody's business: the tool's own, or an evaluation's."""
    _thread.unheard += 1
    try:
        yield
    finally:
        _thread.unheard -= 1


def patch_c10d(module: ModuleType, patches: Patches) -> None:
    """Right after the module's execution: whoever copies a name later copies a wrapper."""
    for name, (kind, given) in _COLLECTIVES.items():
        _wrap(patches, module, name, _collective(module, kind, given))
    for name, kind in _POINT_TO_POINT.items():
        _wrap(patches, module, name, _point_to_point(module, kind))
    _wrap(patches, module, "batch_isend_irecv", _batch(module))


def patch_functional(module: ModuleType, patches: Patches) -> None:
    for name, kind in _FUNCTIONAL.items():
        _wrap(patches, module, name, _functional(module, kind))


def patch_late(patches: Patches) -> None:
    """Where torch was imported before anything could be done: names that somebody has copied stay
    unheard. `isend` and `irecv` do too, because torch compares them with copies in P2POp."""
    c10d, public = sys.modules.get(C10D), sys.modules.get("torch.distributed")
    if c10d is not None and public is not None:
        for name, (kind, given) in _COLLECTIVES.items():
            _wrap(patches, c10d, name, _collective(c10d, kind, given), public)
        for name in ("send", "recv"):
            _wrap(patches, c10d, name, _point_to_point(c10d, name), public)
        _wrap(patches, c10d, "batch_isend_irecv", _batch(c10d), public)
    functional = sys.modules.get(FUNCTIONAL)
    if functional is not None:
        patch_functional(functional, patches)


def _wrap(
    patches: Patches,
    module: ModuleType,
    name: str,
    read: Read,
    copied_to: ModuleType | None = None,
) -> None:
    """Another capture may have done it already: a wrapper tells of what no other one tells, and
    stays silent once its own capture is over."""
    original = getattr(module, name, None)
    if original is None:
        return  # another version of torch
    names = tuple(inspect.signature(original).parameters)

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        idle = not (_listening or _carrying)
        if idle or not patches.active or _compiling() or _thread.unheard:
            return original(*args, **kwargs)
        if _listening:
            _tell(read, {**dict(zip(names, args, strict=False)), **kwargs})
        with unheard():
            if _carrying:
                return _carrying[-1](original, args, kwargs)
            return original(*args, **kwargs)

    patches.replace(module, name, collective)
    if copied_to is not None and getattr(copied_to, name, None) is original:
        patches.replace(copied_to, name, collective)


def _compiling() -> bool:
    return sys.modules["torch"].compiler.is_compiling()


def _tell(read: Read, arguments: Mapping[str, Any]) -> None:
    """Nothing of this may reach the caller."""
    for listening in list(_listening):
        try:
            listening.listener(read(arguments))
        except Exception as error:
            listening.failed(error)


def _collective(c10d: ModuleType, kind: str, given: str) -> Read:
    def read(arguments: Mapping[str, Any]) -> Iterator[Call]:
        group = _group(c10d, arguments.get("group"))
        if group is not None:
            op = _op_name(c10d, arguments.get("op")) if kind in _REDUCING else ""
            tensors = _tensors(arguments.get(given))
            yield Call(kind, op, _members(c10d, group), tensors)

    return read


_REDUCING = ("all_reduce", "reduce", "reduce_scatter")


def _point_to_point(c10d: ModuleType, kind: str) -> Read:
    end = "dst" if kind == "send" else "src"

    def read(arguments: Mapping[str, Any]) -> Iterator[Call]:
        group = _group(c10d, arguments.get("group"))
        if group is None:
            return
        peer = arguments.get(end)
        if peer is None and arguments.get(f"group_{end}") is not None:
            peer = c10d.get_global_rank(group, arguments[f"group_{end}"])
        yield Call(kind, "", _pair(c10d, group, peer), _tensors(arguments.get("tensor")))

    return read


def _batch(c10d: ModuleType) -> Read:
    def read(arguments: Mapping[str, Any]) -> Iterator[Call]:
        for operation in arguments["p2p_op_list"]:
            kind = _POINT_TO_POINT[operation.op.__name__]
            group = _group(c10d, operation.group)
            if group is not None:
                members = _pair(c10d, group, operation.peer)
                yield Call(kind, "", members, _tensors(operation.tensor))

    return read


def _functional(module: ModuleType, kind: str) -> Read:
    def read(arguments: Mapping[str, Any]) -> Iterator[Call]:
        c10d = sys.modules[C10D]
        name = module._resolve_group_name(arguments["group"], arguments.get("tag", ""))
        group = c10d._resolve_process_group(name)
        op = arguments.get("reduceOp", "") if kind in _REDUCING else ""
        given = next(iter(arguments.values()))
        dim = arguments.get("gather_dim")
        yield Call(kind, str(op).lower(), _members(c10d, group), _tensors(given), dim)

    return read


def _group(c10d: ModuleType, group: Any) -> Any:
    """The group that is meant; None if this rank is not in it and takes no part."""
    if group is None:
        return c10d._get_default_group()
    return None if group == c10d.GroupMember.NON_GROUP_MEMBER else group


def _members(c10d: ModuleType, group: Any) -> tuple[int, ...]:
    return tuple(sorted(c10d.get_process_group_ranks(group)))


def _pair(c10d: ModuleType, group: Any, peer: int | None) -> tuple[int, ...]:
    """A receive may be from anyone of the group."""
    if peer is None:
        return _members(c10d, group)
    return tuple(sorted({c10d.get_rank(), peer}))


def _op_name(c10d: ModuleType, op: Any) -> str:
    if op is None:
        return "sum"  # what all of them default to
    # ReduceOp objects compare equal to the constants, but have no name.
    for name in _OPS:
        if op == getattr(c10d.ReduceOp, name, None):
            return name.lower()
    return ""


def _tensors(given: Any) -> tuple[Any, ...]:
    is_tensor = sys.modules["torch"].is_tensor
    if is_tensor(given):
        return (given,)
    return tuple(x for x in given if is_tensor(x)) if isinstance(given, list | tuple) else ()
