"""Weights that are a function of the seed and of a parameter's name in the whole model.

Megatron draws weights in the order in which a rank builds its modules. Ranks that build other
layers (pipeline stages, virtual ones) or other experts draw other weights than a single process,
and experts of one place on two ranks draw the same. Here each whole matrix is drawn from a
generator of its own, and a rank keeps its part.
"""

from __future__ import annotations

import re
import zlib

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import _initialize_affine_weight_cpu
from megatron.core.transformer import TransformerConfig

# Copied here, so that a bug that replaces it in megatron-core changes no weights.
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

from gpt.versions import known_to

_EMBEDDING = "embedding.word_embeddings.weight"


def draw_by_name(
    model: torch.nn.Module, config: TransformerConfig, seed: int, vp_stage: int | None
) -> None:
    """Draws all matrices of a chunk of the model again. Vectors start as constants anyway, but for
    the learned score of an attention sink."""
    number = known_to(get_transformer_layer_offset, vp_stage=vp_stage)
    first_layer = get_transformer_layer_offset(config, **number)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 and not name.endswith("softmax_offset"):
            continue
        whole = _global_name(name, first_layer, config)
        if whole == "output_layer.weight" and model.share_embeddings_and_output_weights:
            whole = _EMBEDDING
        state = torch.get_rng_state()
        torch.manual_seed(zlib.crc32(f"{seed} {whole}".encode()))
        _draw(name, parameter, config)
        torch.set_rng_state(state)


def _global_name(name: str, first_layer: int, config: TransformerConfig) -> str:
    """With the numbers that layers and experts have in the whole model."""
    name = re.sub(r"^(decoder\.layers\.)(\d+)", lambda m: f"{m[1]}{int(m[2]) + first_layer}", name)
    if config.num_moe_experts:
        ranks = parallel_state.get_expert_model_parallel_world_size()
        first_expert = (
            parallel_state.get_expert_model_parallel_rank() * config.num_moe_experts // ranks
        )
        name = re.sub(
            r"(local_experts\.)(\d+)", lambda m: f"{m[1]}{int(m[2]) + first_expert}", name
        )
    return name


def _stride(name: str, parameter: torch.nn.Parameter, config: TransformerConfig) -> int:
    """Of a gate and an up projection in one weight a rank holds a part of both, which the
    attribute says in newer versions only."""
    gated = config.gated_linear_unit and name.endswith("linear_fc1.weight")
    return 2 if gated else getattr(parameter, "partition_stride", 1)


def _draw(name: str, parameter: torch.nn.Parameter, config: TransformerConfig) -> None:
    back_to_residual = re.search(r"(linear_proj|linear_fc2|\.down)\.weight$", name)
    init_method = config.output_layer_init_method if back_to_residual else config.init_method
    if ".local_experts." in name:
        size = parallel_state.get_expert_tensor_parallel_world_size()
        rank = parallel_state.get_expert_tensor_parallel_rank()
    else:
        size = parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_tensor_model_parallel_rank()
    shape = [*parameter.shape, 1][:2]
    dimension = 0
    if getattr(parameter, "tensor_model_parallel", False):
        dimension = parameter.partition_dim
    elif not name.endswith("softmax_offset"):  # Cut by heads, but without the attribute.
        size, rank = 1, 0
    held = shape[dimension]
    shape[dimension] *= size
    drawn = torch.empty([*parameter.shape, 1][:2])
    _initialize_affine_weight_cpu(
        drawn,
        shape[0],
        shape[1],
        held,
        dimension,
        init_method,
        stride=_stride(name, parameter, config),
        rank=rank,
        world_size=size,
        skip_set_tensor_parallel_attributes=True,
    )
    parameter.data.copy_(drawn.view_as(parameter))
