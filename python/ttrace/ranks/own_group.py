"""A default process group for some ranks of a job that has one, for as long as a function runs.

What `torch.distributed` calls the default group is then one of these ranks alone, and what the
function makes of it (groups, device meshes) goes with it. Groups that the job made before stay
known under their names, and are there afterwards as they were.

torch keeps its groups in one object, of which this makes another that looks through to it. Names of
groups are the same each time: what torch caches by a device mesh is looked up by the names of its
groups, and finds those of the function that runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_FAMILIES = socket.AF_INET, socket.AF_INET6
_FIRST_NAME = 1_000_000  # of a group: above all that a job has made


class _Over(dict[Any, Any]):
    """What is added lies over what was there: that is found too, but is not this one's."""

    def __init__(self, below: Mapping[Any, Any]) -> None:
        super().__init__()
        self._below = below

    def __missing__(self, key: Any) -> Any:
        return self._below[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._below

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def values(self) -> Any:
        return [*super().values(), *self._below.values()]


_TABLES = (
    *("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config"),
    *("tags_to_pg", "pg_to_tag"),
)


def _world_over(c10d: Any, below: Any) -> Any:
    tables = {name: _Over(getattr(below, name)) for name in _TABLES}
    # A list of groups under each tag, which is added to: this one's is its own.
    tables["tags_to_pg"] = _Over({})
    properties = {name: property(lambda self, name=name: tables[name]) for name in _TABLES}
    properties["group_count"] = property(
        lambda self: self.count, lambda self, value: setattr(self, "count", value)
    )
    world = type("World", (c10d._World,), properties)()
    world.count = _FIRST_NAME
    return world


@contextmanager
def own_group(
    ranks: int, rank: int, backend: str, store: Any, timeout: timedelta
) -> Iterator[None]:
    """Inside, the default group is one of `ranks` ranks, of which this is number `rank`, and the
    environment says so. `store`: one of theirs alone. Raises RuntimeError if this torch keeps its
    groups otherwise."""
    c10d = dist.distributed_c10d
    if not hasattr(c10d, "_World") or not hasattr(c10d, "_world"):
        raise RuntimeError(f"torch {torch.__version__} keeps its process groups otherwise")
    before = c10d._world
    default = before.default_pg
    names = {group: before.pg_names[group] for group in before.pg_map}
    connections = _connections()
    with _kept(c10d), _environment(ranks, rank):
        c10d._world = _world_over(c10d, before)
        try:
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=ranks, timeout=timeout
            )
            yield
        except BaseException:
            _hang_up(connections)
            raise
        finally:
            try:
                if c10d._world.default_pg is not None:
                    dist.destroy_process_group()
            finally:
                c10d._world = before
                c10d._update_default_pg(default)
                _know_again(names.items())


def _connections() -> set[str]:
    """What the system calls the sockets of this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in found if name.startswith("socket:")}


def _hang_up(before: set[str]) -> None:
    """Ends connections that were made since: a rank that waits for this one is told that it has
    gone. To end the group is not enough, as DistributedDataParallel keeps it open until the process
    ends."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}")
            if name.startswith("socket:") and name not in before:
                with socket.socket(fileno=os.dup(number)) as connection:
                    listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    if connection.family in _FAMILIES and not listens:
                        connection.shutdown(socket.SHUT_RDWR)


def _know_again(groups: Iterable[tuple[Any, str]]) -> None:
    """The end of a default group makes torch forget the names of all."""
    c10d = torch._C._distributed_c10d
    for group, name in groups:
        try:
            c10d._resolve_process_group(name)
        except RuntimeError:
            c10d._register_process_group(name, group)


@contextmanager
def _kept(c10d: Any) -> Iterator[None]:
    """What `init_process_group` sets beside, and what DTensor remembers of its first mesh."""
    random = sys.modules.get("torch.distributed.tensor._random")
    places = [
        (sys, "excepthook"),
        (c10d, "_backend"),
        (c10d, "_default_pg_init_method"),
        *([] if random is None else [(random, "_rng_tracker")]),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name in places if hasattr(owner, name)]
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


@contextmanager
def _environment(ranks: int, rank: int) -> Iterator[None]:
    """As a launcher would set it; what the function sets itself goes, too."""
    before = dict(os.environ)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            with contextlib.suppress(KeyError):
                del os.environ[name]
        os.environ |= before
