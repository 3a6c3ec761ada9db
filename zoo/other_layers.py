"""Layers that are not megatron-core's own, in places where its layers stand.

Their classes have other names, as TransformerEngine's have, or are written from scratch, as users
write theirs. What they compute is right.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig, multi_latent_attention
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from torch import nn


class TEColumnParallelLinear(ColumnParallelLinear):
    """Under TransformerEngine's name, with its name for the input."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)


class TERowParallelLinear(RowParallelLinear):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)


class TELinear(nn.Module):
    """TransformerEngine's, as it projects down in latent attention: whole on every rank."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        parallel_mode: str,
        config: TransformerConfig,
        init_method: Any,
        **unused: Any,
    ) -> None:
        assert parallel_mode == "duplicated"
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> Any:
        return nn.functional.linear(x, self.weight), None


class MeanSquareNorm(nn.Module):
    """An RMS norm of nobody's library. Megatron reduces its gradient over the sequence's parts
    because of the attribute."""

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **unused: Any
    ) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.gain.sequence_parallel = config.sequence_parallel
        self.eps = eps

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        mean = values.float().square().mean(dim=-1, keepdim=True)
        return (values.float() * torch.rsqrt(mean + self.eps)).to(values.dtype) * self.gain


class ForgetfulNorm(MeanSquareNorm):
    """The same, whose author did not know of the attribute: wrong with sequence parallelism."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        del self.gain.sequence_parallel


class GainedFeedForward(MegatronModule):
    """A feed-forward block of a user's own, with a parameter that no layer of Megatron has."""

    def __init__(self, config: TransformerConfig, submodules: Any, **unused: Any) -> None:
        super().__init__(config=config)
        keywords = dict(
            config=config,
            init_method=config.init_method,
            bias=config.add_bias_linear,
            skip_bias_add=False,
            is_expert=False,
        )
        self.up = build_module(
            submodules.linear_fc1,
            config.hidden_size,
            config.ffn_hidden_size,
            gather_output=False,
            **keywords,
        )
        self.down = build_module(
            submodules.linear_fc2,
            config.ffn_hidden_size,
            config.hidden_size,
            input_is_parallel=True,
            **keywords,
        )
        self.gain = nn.Parameter(torch.full((config.hidden_size,), 0.5, dtype=config.params_dtype))
        self.gain.sequence_parallel = config.sequence_parallel
        self.register_buffer("shift", torch.full((1,), 0.25))

    def forward(self, values: torch.Tensor, **unused: Any) -> tuple[torch.Tensor, None]:
        up, _ = self.up(values)
        down, _ = self.down(nn.functional.gelu(up) + self.shift.to(up.dtype))
        return down * self.gain, None


def replace(spec: ModuleSpec, linears: str, norm: str, feed_forward: str) -> None:
    """Puts other classes into a layer's specification."""
    layer = spec.submodules
    attention, mlp = layer.self_attention.submodules, layer.mlp.submodules
    if linears == "te-fused":
        # Older versions lack what it needs.
        from transformer_engine_layers import fuse

        fuse(spec, forgetful=norm == "forgetful")
    elif norm != "core":
        kind = MeanSquareNorm if norm == "own" else ForgetfulNorm
        layer.input_layernorm = layer.pre_mlp_layernorm = kind
    if linears == "te":
        attention.linear_proj = mlp.linear_fc2 = TERowParallelLinear
        mlp.linear_fc1 = TEColumnParallelLinear
        for name in ("linear_qkv", "linear_q_proj", "linear_q_up_proj", "linear_kv_up_proj"):
            if hasattr(attention, name):
                setattr(attention, name, TEColumnParallelLinear)
        if hasattr(attention, "linear_kv_down_proj"):
            attention.linear_q_down_proj = attention.linear_kv_down_proj = TELinear
            multi_latent_attention.TELinear = TELinear  # by which it knows what is duplicated
    if feed_forward == "own":
        layer.mlp = ModuleSpec(module=GainedFeedForward, submodules=mlp)


def replace_linears_by_fp8(spec: ModuleSpec) -> None:
    """Those of attention and of a dense feed-forward block; experts keep theirs."""
    from gpt.fake_fp8 import FP8ColumnParallelLinear, FP8RowParallelLinear

    for part in (spec.submodules.self_attention.submodules, spec.submodules.mlp.submodules):
        for name in ("linear_qkv", "linear_fc1"):
            if hasattr(part, name):
                setattr(part, name, FP8ColumnParallelLinear)
        for name in ("linear_proj", "linear_fc2"):
            if hasattr(part, name):
                setattr(part, name, FP8RowParallelLinear)
