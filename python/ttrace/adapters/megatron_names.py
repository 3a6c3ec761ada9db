"""Where this rank is in Megatron's grid, and the canonical names of its modules and parameters."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ttrace.capture.agreement import Board
from ttrace.capture.settings import Settings

MESH = ("pp", "dp", "cp", "tp")
TIED_WEIGHT = "embedding.word_embeddings.weight"

# Stages come to their first step together, but for what one of them may still load.
_STAGE_SECONDS = 60.0


@dataclass(frozen=True)
class Topology:
    """Sizes of the mesh dimensions and this rank's coordinates, by name."""

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
        # Megatron ignores sequence parallelism without tensor parallelism.
        return Topology(size, coordinate, bool(config.sequence_parallel) and size["tp"] > 1)

    def placements(self, **words: str) -> str:
        """Text of the placements, in the mesh's order, without dimensions of size one."""
        return " ".join(f"{d}:{words[d]}" for d in MESH if d in words and self.size[d] > 1)

    def over(self, *dims: str) -> tuple[str, ...]:
        """Those of `dims` that have more than one rank."""
        return tuple(d for d in MESH if d in dims and self.size[d] > 1)

    def terms(self, *dims: str) -> dict[str, str]:
        """Each of `dims` holds terms of a sum."""
        return {d: "Partial(sum)" for d in dims}

    def coordinate_of(self, *dims: str) -> str:
        return ",".join(f"{d}={self.coordinate[d]}" for d in self.over(*dims))


def wrappers(module: nn.Module) -> list[nn.Module]:
    """DistributedDataParallel, Float16Module, torch.compile's and the like, the outermost first,
    and the model last."""
    found = [module]
    while True:
        # torch.compile's wrapper hands on attributes of what it wraps.
        inner = module._modules.get("_orig_mod") or module._modules.get("module")
        if inner is None:
            return found
        found.append(module := inner)


def unwrap(module: nn.Module) -> nn.Module:
    """The model inside its wrappers."""
    return wrappers(module)[-1]


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile was called on it, or `compile` of its own."""
    own = getattr(module, "_compiled_call_impl", None) is not None
    return own or type(module).__name__ == "OptimizedModule"


def first_layers(
    chunks: list[nn.Module], pp_rank: int, pp_size: int, settings: Settings
) -> list[int]:
    """Global number of the first layer of each of this rank's chunks, counted from what is there
    and not from Megatron's own offsets, which may be what is wrong.

    Stages tell each other through the store: a collective would be one more in the user's call. Any
    rank of a stage speaks for it. Raises RuntimeError if a stage says nothing.
    """
    mine = [len(_layers(chunk)) for chunk in chunks]
    counts = [mine]
    if pp_size > 1:
        board = Board(settings)
        board.pin(f"layers of stage {pp_rank}", json.dumps(mine))
        counts = [_layers_of_stage(board, stage) for stage in range(pp_size)]
    first, offset = [], 0
    for chunk in range(len(mine)):
        for stage in range(pp_size):
            if stage == pp_rank:
                first.append(offset)
            offset += counts[stage][chunk]
    return first


def _layers_of_stage(board: Board, stage: int) -> list[int]:
    text = board.read(f"layers of stage {stage}", _STAGE_SECONDS)
    if text is None:
        raise RuntimeError(
            f"no rank of pipeline stage {stage} said in {_STAGE_SECONDS:.0f} s how many layers it"
            " has: is capture on there?"
        )
    return json.loads(text)


def _layers(chunk: nn.Module) -> Any:
    return getattr(getattr(chunk, "decoder", None), "layers", ())


def module_name(name: str, first_layer: int) -> str:
    """What a later stage calls decoder.layers.0.mlp may be decoder.layers.2.mlp. torch.compile's
    wrappers leave no trace in a name."""
    name = ".".join(part for part in name.split(".") if part != "_orig_mod")
    return re.sub(
        r"^decoder\.layers\.(\d+)",
        lambda match: f"decoder.layers.{int(match[1]) + first_layer}",
        name,
    )


def is_tied(root: nn.Module) -> bool:
    """Whether the LM head is the embedding, from how the model was built."""
    return bool(getattr(root, "share_embeddings_and_output_weights", False))


def parameter_name(name: str, root: nn.Module, first_layer: int) -> str:
    """As module_name; the head's copy of a tied weight has the embedding's name."""
    if name == "output_layer.weight" and is_tied(root):
        return TIED_WEIGHT
    return module_name(name, first_layer)


def device_of(module: nn.Module) -> torch.device:
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
