"""Where plain tensors lie on a device mesh, as the loop has said in `attach`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


class NotDeclared(Exception):
    """What was given says nothing; the message is one sentence."""


@dataclass(frozen=True)
class Declared:
    """`placements`: of the tensors that go into modules and come out of them, by patterns of the
    modules' names, or of "module:argument", the first that fits; for each, names of the mesh's
    dimensions with what they do to the tensor."""

    mesh: Any  # a torch DeviceMesh
    placements: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def of(mesh: Any, placements: Any) -> Declared | None:
        """Raises NotDeclared."""
        if mesh is None and placements is None:
            return None
        if mesh is None:
            raise NotDeclared("placements are given without the mesh that they are on: give mesh=")
        if not hasattr(mesh, "mesh_dim_names") or not hasattr(mesh, "get_coordinate"):
            raise NotDeclared(f"mesh is of type {type(mesh).__name__}, and no DeviceMesh")
        if mesh.mesh_dim_names is None:
            raise NotDeclared("the mesh has no names: give init_device_mesh mesh_dim_names=")
        given = {} if placements is None else placements
        if not isinstance(given, Mapping):
            raise NotDeclared(_form(given))
        for pattern, words in given.items():
            if not isinstance(pattern, str) or not isinstance(words, Mapping):
                raise NotDeclared(_form(given))
            for name, placement in words.items():
                if name not in mesh.mesh_dim_names:
                    known = ", ".join(mesh.mesh_dim_names)
                    raise NotDeclared(f"the mesh has no dimension {name!r}, but {known}")
                if not hasattr(placement, "is_shard") or placement.is_partial():
                    raise NotDeclared(f"{pattern}: {name}: give Shard(dim) or Replicate()")
        return Declared(mesh, given)

    def dims(self) -> frozenset[str]:
        """Those that cut tensors, and so no batch."""
        return frozenset(
            name
            for words in self.placements.values()
            for name, placement in words.items()
            if placement.is_shard()
        )

    def words(self, fqn: str, arg: str, dims: int) -> str:
        """Of a tensor of `dims` dimensions that a module takes as `arg`, or gives as output number
        `arg`, as text of the trace."""
        for pattern, words in self.placements.items():
            if fnmatchcase(f"{fqn}:{arg}" if ":" in pattern else fqn, pattern):
                return " ".join(
                    f"{name}:Shard({placement.dim % dims})"
                    for name, placement in words.items()
                    if placement.is_shard() and -dims <= placement.dim < dims
                )
        return ""


def _form(given: Any) -> str:
    return (
        f"placements is of type {type(given).__name__}: give "
        '{"MODULE": {"MESH DIMENSION": Shard(dim)}}'
    )
