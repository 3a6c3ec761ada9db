"""Where this rank is in Megatron's grids of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

MESH = ("pp", "dp", "cp", "tp")
# The same ranks as layers of experts see them; in general no finer or coarser grid.
EXPERT_MESH = ("pp", "edp", "ep", "etp")


@dataclass(frozen=True)
class Topology:
    """Sizes of the mesh dimensions and this rank's coordinates, by name: those of EXPERT_MESH too
    where there are experts."""

    size: dict[str, int]
    coordinate: dict[str, int]
    sequence_parallel: bool

    @staticmethod
    def of(config: Any) -> Topology:
        from megatron.core import parallel_state as ps

        size = {
            "pp": ps.get_pipeline_model_parallel_world_size(),
            "dp": ps.get_data_parallel_world_size(),
            "cp": ps.get_context_parallel_world_size(),
            "tp": ps.get_tensor_model_parallel_world_size(),
        }
        coordinate = {
            "pp": ps.get_pipeline_model_parallel_rank(),
            "dp": ps.get_data_parallel_rank(),
            "cp": ps.get_context_parallel_rank(),
            "tp": ps.get_tensor_model_parallel_rank(),
        }
        if getattr(config, "num_moe_experts", None):
            size |= {
                "ep": ps.get_expert_model_parallel_world_size(),
                "etp": ps.get_expert_tensor_parallel_world_size(),
            }
            size["edp"] = size["dp"] * size["cp"] * size["tp"] // (size["ep"] * size["etp"])
            coordinate |= _among_experts(size, coordinate)
        # Megatron ignores sequence parallelism without tensor parallelism.
        return Topology(size, coordinate, bool(config.sequence_parallel) and size["tp"] > 1)

    @property
    def mesh(self) -> tuple[list[tuple[str, int]], list[int]]:
        return self._grid(MESH)

    def views(self) -> list[tuple[list[tuple[str, int]], list[int]]]:
        """Other grids of the same ranks."""
        return [self._grid(EXPERT_MESH)] if "ep" in self.size else []

    def _grid(self, dims: tuple[str, ...]) -> tuple[list[tuple[str, int]], list[int]]:
        return [(d, self.size[d]) for d in dims], [self.coordinate[d] for d in dims]

    def placements(self, **words: str) -> str:
        """Text of the placements, in a mesh's order, without dimensions of size one."""
        return " ".join(f"{d}:{words[d]}" for d in _ALL if d in words and self.size[d] > 1)

    def over(self, *dims: str) -> tuple[str, ...]:
        """Those of `dims` that have more than one rank."""
        return tuple(d for d in _ALL if d in dims and self.size[d] > 1)

    def terms(self, *dims: str) -> dict[str, str]:
        """Each of `dims` holds terms of a sum."""
        return {d: "Partial(sum)" for d in dims}

    def coordinate_of(self, *dims: str) -> str:
        return ",".join(f"{d}={self.coordinate[d]}" for d in self.over(*dims))

    def coordinate_in_stage(self, place: int) -> dict[str, int]:
        """Where the stage's rank of this number is in the grid of dp, cp and tp."""
        rest, tp = divmod(place, self.size["tp"])
        dp, cp = divmod(rest, self.size["cp"])
        return {"dp": dp, "cp": cp, "tp": tp}

    def first_expert(self, config: Any) -> int:
        """Number of the first of this rank's experts."""
        experts = getattr(config, "num_moe_experts", None) or 0
        return experts // self.size.get("ep", 1) * self.coordinate.get("ep", 0)

    def place_in(self, *dims: str) -> tuple[int, int]:
        """How many ranks differ in these dimensions only, and which of them this one is; the last
        dimension runs fastest."""
        place = 0
        for dim in dims:
            place = place * self.size.get(dim, 1) + self.coordinate.get(dim, 0)
        return prod(self.size.get(dim, 1) for dim in dims), place


_ALL = tuple(dict.fromkeys((*MESH, *EXPERT_MESH)))


def _among_experts(size: dict[str, int], coordinate: dict[str, int]) -> dict[str, int]:
    """Ranks of a stage are numbered with tp running fastest, then cp, then dp; and in the grid of
    experts with etp running fastest, then ep, then edp."""
    place = (coordinate["dp"] * size["cp"] + coordinate["cp"]) * size["tp"] + coordinate["tp"]
    return {
        "etp": place % size["etp"],
        "ep": place // size["etp"] % size["ep"],
        "edp": place // (size["etp"] * size["ep"]),
    }
