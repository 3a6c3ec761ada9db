"""Canonical names of modules and parameters: layers and experts are numbered over the whole model,
wrappers leave no trace."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ttrace.capture.agreement import Board
from ttrace.capture.settings import Settings

TIED_WEIGHT = "embedding.word_embeddings.weight"
HEAD_WEIGHT = "output_layer.weight"

# Stages come to their first step together, but for what one of them may still load.
_STAGE_SECONDS = 60.0

_LAYER = re.compile(r"^(decoder\.layers\.)(\d+)")
_EXPERT = re.compile(r"(\.local_experts\.)(\d+)")


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


@dataclass(frozen=True)
class Numbering:
    """What the numbers in the names of a chunk's modules count from."""

    first_layer: int = 0
    first_expert: int = 0  # of this rank's part of the experts of a layer

    def module(self, name: str) -> str:
        """What a later stage calls decoder.layers.0.mlp may be decoder.layers.2.mlp."""
        name = ".".join(part for part in name.split(".") if part != "_orig_mod")
        name = _LAYER.sub(lambda m: f"{m[1]}{int(m[2]) + self.first_layer}", name)
        return _EXPERT.sub(lambda m: f"{m[1]}{int(m[2]) + self.first_expert}", name)

    def parameter(self, name: str, root: nn.Module) -> str:
        """The head's copy of a tied weight has the embedding's name."""
        if name == HEAD_WEIGHT and is_tied(root):
            return TIED_WEIGHT
        return self.module(name)


def is_tied(root: nn.Module) -> bool:
    """Whether the LM head is the embedding, from how the model was built."""
    return bool(getattr(root, "share_embeddings_and_output_weights", False))


def has_copies_of_embedding(root: nn.Module) -> bool:
    """Whether stages but the first have the embedding's weight too: as LM head, or to embed the
    further tokens of multi-token prediction."""
    return is_tied(root) or bool(getattr(root.config, "mtp_num_layers", None))


def embeds_again(root: nn.Module) -> bool:
    """Whether a chunk has an embedding for the tokens of multi-token prediction alone: the first
    stage has that of the tokens themselves."""
    return has_further_tokens(root) and not root.pre_process


def has_further_tokens(root: nn.Module) -> bool:
    """Whether the layers of multi-token prediction are in this chunk."""
    return bool(getattr(root, "mtp_process", False))


def is_unused(name: str, root: nn.Module) -> bool:
    """A head that is tied multiplies by the weight of the chunk's embedding, if there is one; and
    yet Megatron gives it a weight on all stages but the first."""
    return name == HEAD_WEIGHT and is_tied(root) and embeds_again(root)


def device_of(module: nn.Module) -> torch.device:
    parameter = next(module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
