"""What a module is, for the tables of rules: by the name of its class, those of its bases, or its
place in a parent that is known.

TransformerEngine's linears, a user's own norm or a subclass of Megatron's stand where Megatron's
own would, and the parent's contract says what they are given and what they return. A class that
none of this tells is unknown.
"""

from __future__ import annotations

from typing import Any

from torch import nn

COLUMN, ROW, NORM = "ColumnParallelLinear", "RowParallelLinear", "norm"
# Whole on every rank, and given what the rank has of the residual stream.
DUPLICATED = "duplicated linear"
LATENT_ATTENTION = "MLASelfAttention"
FURTHER_TOKEN = "MultiTokenPredictionLayer"

_CLASSES = frozenset(
    {
        "GPTModel",
        "LanguageModelEmbedding",
        "VocabParallelEmbedding",
        "Embedding",
        "RotaryEmbedding",
        "TransformerBlock",
        "TransformerLayer",
        "MultiTokenPredictionBlock",
        FURTHER_TOKEN,
        "SelfAttention",
        LATENT_ATTENTION,
        "MLP",
        "MoELayer",
        "TopKRouter",
        COLUMN,
        ROW,
        "FusedScaleMaskSoftmax",
        "Dropout",
    }
)
# A subclass of these may be used for something else.
_BY_EXACT_NAME = frozenset({"Embedding", "Dropout"})
_NORM_CLASSES = frozenset(
    {
        "LayerNorm",
        "RMSNorm",
        "FusedLayerNorm",
        "FusedRMSNorm",
        "MixedFusedLayerNorm",
        "MixedFusedRMSNorm",
        "FastLayerNorm",
        "WrappedTorchNorm",
        "L2Norm",
        "TENorm",
    }
)
_ALIASES = {
    "TEColumnParallelLinear": COLUMN,
    "TELayerNormColumnParallelLinear": COLUMN,
    "TERowParallelLinear": ROW,
}
_PARALLEL_MODES = {"column": COLUMN, "row": ROW}  # of TELinear
# Megatron's own names, whatever a class calls its first argument.
LINEAR_ARGUMENTS = ("input_", "weight", "runtime_gather_output")
HEAD_NORMS = ("q_layernorm", "k_layernorm")
# Of latent attention. Column-parallel ones are gathered before what they make is normalised.
_DOWN_PROJECTIONS = ("linear_q_down_proj", "linear_kv_down_proj")
_SLOTS = {
    "TransformerLayer": dict.fromkeys(
        ("input_layernorm", "pre_cross_attn_layernorm", "pre_mlp_layernorm"), NORM
    ),
    "TransformerBlock": {"final_layernorm": NORM},
    FURTHER_TOKEN: {
        **dict.fromkeys(("enorm", "hnorm", "final_layernorm"), NORM),
        "eh_proj": COLUMN,
    },
    "SelfAttention": {
        "linear_qkv": COLUMN,
        "linear_proj": ROW,
        **dict.fromkeys(HEAD_NORMS, NORM),
    },
    LATENT_ATTENTION: {
        **dict.fromkeys(
            ("linear_q_proj", "linear_q_up_proj", "linear_kv_up_proj", *_DOWN_PROJECTIONS), COLUMN
        ),
        "linear_proj": ROW,
        **dict.fromkeys(("q_layernorm", "kv_layernorm"), NORM),
    },
    "MLP": {"linear_fc1": COLUMN, "linear_fc2": ROW},
    "GPTModel": {"output_layer": COLUMN},
}
_NORM_PLACES = frozenset(
    name for slots in _SLOTS.values() for name, kind in slots.items() if kind == NORM
)


class Structure:
    """The kinds of one model's modules. Ask for parents before their children."""

    def __init__(self, root: nn.Module, tp: int) -> None:
        self._root = root
        self._tp = tp
        self._kinds: dict[str, str | None] = {}

    def kind(self, module: nn.Module, name: str) -> str | None:
        """`name` is the module's in the model, the root's is "". None: nothing is known of it."""
        if name not in self._kinds:
            self._kinds[name] = self._find(module, name)
        return self._kinds[name]

    def is_of_heads(self, name: str) -> bool:
        """Whether this norm is applied to each head of the rank, and not to the residual stream or
        to what latent attention compresses it to."""
        parent, _, last = name.rpartition(".")
        return last in HEAD_NORMS and self._kinds.get(parent) != LATENT_ATTENTION

    def _find(self, module: nn.Module, name: str) -> str | None:
        own = type(module).__name__
        parent, _, last = name.rpartition(".")
        if own.endswith("DotProductAttention"):
            return "DotProductAttention"
        if own == "TELinear" and getattr(module, "parallel_mode", None):
            return _PARALLEL_MODES.get(module.parallel_mode)
        kind = _by_class(type(module))
        if kind == NORM and self._tp > 1 and last not in _NORM_PLACES:
            # What is given to a norm that stands elsewhere is not known.
            return None
        return kind or self._by_place(module, self._kinds.get(parent), last)

    def _by_place(self, module: nn.Module, parent: str | None, last: str) -> str | None:
        kind = _SLOTS.get(parent or "", {}).get(last)
        if kind == NORM:
            return kind if all(p.dim() < 2 for p in module.parameters(recurse=True)) else None
        if kind is None or self._is_linear(module, kind):
            return kind
        return DUPLICATED if last in _DOWN_PROJECTIONS and _is_whole(module) else None

    def _is_linear(self, module: nn.Module, kind: str) -> bool:
        weight = module._parameters.get("weight")
        if weight is None or weight.dim() != 2:
            return False
        return self._tp == 1 or partition_dim(weight) == (0 if kind == COLUMN else 1)


def _is_whole(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    return weight is not None and weight.dim() == 2 and partition_dim(weight) is None


def is_expert(name: str) -> bool:
    """Whether this is within a module that computes tokens sent to it. A shared expert is not."""
    return "experts" in name.split(".")


def _by_class(cls: type) -> str | None:
    for position, base in enumerate(cls.__mro__):
        name = base.__name__
        if name in _NORM_CLASSES:
            return NORM
        if name in _ALIASES:
            return _ALIASES[name]
        if name in _CLASSES and (position == 0 or name not in _BY_EXACT_NAME):
            return name
    return None


def partition_dim(parameter: Any) -> int | None:
    """The dimension that tensor parallelism cuts, as the parameter itself says."""
    dim = getattr(parameter, "partition_dim", -1)
    if not getattr(parameter, "tensor_model_parallel", False) or not isinstance(dim, int):
        return None
    return dim if 0 <= dim < parameter.dim() else None
