"""Groups of ranks as dimensions of one grid.

Wrappers and device meshes say which ranks belong together, each in its own terms: a process group,
a mesh of one dimension, one of several, a dimension that others were flattened into. What they mean
is told by how their ranks are laid out: those of a group are `size` ranks, `stride` apart. The grid
of a run is the coarsest into which all groups fit: each is one of its dimensions, or several
neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Extent(NamedTuple):
    """`size` ranks, `stride` apart."""

    size: int
    stride: int


class NoGrid(Exception):
    """Groups do not fit into one grid; the message says which."""


@dataclass(frozen=True)
class Grid:
    """Of `world` ranks. Dimensions with the largest stride first."""

    names: tuple[str, ...]
    extents: tuple[Extent, ...]

    @staticmethod
    def of(world: int, named: Sequence[tuple[str, Extent]], rest: str) -> Grid:
        """The coarsest into which all of `named` fit. Dimensions that are none of these have the
        name `rest`, with a number where there are several. Raises NoGrid."""
        marks = {1, world}
        for name, (size, stride) in named:
            if size > 1:
                marks |= {stride, size * stride}
                if world % (size * stride):
                    raise NoGrid(f"'{name}' of {size} ranks, {stride} apart, among {world}")
        steps = sorted(marks)
        for low, high in itertools.pairwise(steps):
            if high % low:
                groups = ", ".join(
                    f"'{name}' ({e.size} ranks, {e.stride} apart)" for name, e in named
                )
                raise NoGrid(f"no one grid has all of {groups}")
        extents = [Extent(high // low, low) for low, high in itertools.pairwise(steps)]
        extents.reverse()
        known = {extent: name for name, extent in reversed(named)}
        parts = {
            extent: f"{name}{i}"
            for name, whole in reversed(named)
            for i, extent in enumerate(e for e in extents if within(e, whole))
        }
        names = [known.get(extent) or parts.get(extent) or "" for extent in extents]
        unnamed = names.count("")
        numbers = iter(range(unnamed))
        names = [name or (rest if unnamed == 1 else f"{rest}{next(numbers)}") for name in names]
        if len(set(names)) < len(names):
            raise NoGrid(f"two dimensions have one name, of {', '.join(names)}")
        return Grid(tuple(names), tuple(extents))

    def inside(self, extent: Extent) -> tuple[str, ...] | None:
        """The dimensions that a group is made of, the outermost first; none of one rank. None: it
        does not fit."""
        found = [
            (name, own)
            for name, own in zip(self.names, self.extents, strict=True)
            if within(own, extent)
        ]
        size = 1
        for _, own in found:
            size *= own.size
        return tuple(name for name, _ in found) if size == extent.size else None

    def coordinate(self, rank: int) -> dict[str, int]:
        return {
            name: rank // extent.stride % extent.size
            for name, extent in zip(self.names, self.extents, strict=True)
        }

    def sizes(self) -> dict[str, int]:
        return {n: extent.size for n, extent in zip(self.names, self.extents, strict=True)}


def within(inner: Extent, outer: Extent) -> bool:
    return (
        inner.stride % outer.stride == 0
        and outer.size * outer.stride % (inner.size * inner.stride) == 0
        and inner.size * inner.stride <= outer.size * outer.stride
    )


def extent_of(ranks: Iterable[int]) -> Extent | None:
    """Of a group with these ranks; None if they are not equally far apart, in ascending order."""
    ranks = list(ranks)
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    even = all(b - a == stride for a, b in itertools.pairwise(ranks))
    return Extent(len(ranks), stride) if even and stride > 0 else None


def extents_of(mesh: Any) -> list[Extent] | None:
    """Of each dimension of a DeviceMesh, as this rank is in it; None: it is not, or its ranks are
    not equally far apart."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    found = []
    for dim in range(mesh.ndim):
        index = list(coordinate)
        index[dim] = slice(None)
        extent = extent_of(mesh.mesh[tuple(index)].tolist())
        if extent is None:
            return None
        found.append(extent)
    return found
