"""Linears and norms under TransformerEngine's class names, for a CPU.

As megatron-core's wrappers around that library: the same names, arguments, attributes and marks on
parameters, and the same layout of a layer, in which the norms before attention and before the
feed-forward block are part of the linear behind them. What they compute is megatron-core's own.
Quantisation, and communication that overlaps with products, are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.tensor_parallel.layers import (
    _initialize_affine_weight_cpu,
    linear_with_frozen_weight,
    linear_with_grad_accumulation_and_async_allreduce,
    set_tensor_model_parallel_attributes,
)
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.utils import get_tensor_model_parallel_group_if_none
from torch import nn

_COLUMN, _ROW = "column", "row"


def _normalised(
    values: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    zero_centered: bool,
) -> torch.Tensor:
    """By a LayerNorm if there is a bias, else by its root mean square."""
    gain = weight + 1 if zero_centered else weight
    if bias is not None:
        return nn.functional.layer_norm(values, gain.shape, gain, bias, eps)
    return nn.functional.rms_norm(values, gain.shape, gain, eps)


class _Norm(nn.Module):
    def __init__(self, config: TransformerConfig, size: int, eps: float, has_bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.zero_centered_gamma = config.layernorm_zero_centered_gamma
        start = 0.0 if self.zero_centered_gamma else 1.0
        self.weight = nn.Parameter(torch.full((size,), start, dtype=config.params_dtype))
        if has_bias:
            self.bias = nn.Parameter(torch.zeros(size, dtype=config.params_dtype))
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel

    def forward(self, inp: torch.Tensor) -> torch.Tensor:
        bias = getattr(self, "bias", None)
        return _normalised(inp, self.weight, bias, self.eps, self.zero_centered_gamma)


class LayerNorm(_Norm):
    pass


class RMSNorm(_Norm):
    pass


class TENorm:
    """Gives one of the two above."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> Any:
        kind = LayerNorm if config.normalization == "LayerNorm" else RMSNorm
        return kind(config, hidden_size, eps, has_bias=kind is LayerNorm)


class _Linear(nn.Module):
    """The part of the weight that this rank has, and what all linears remember."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        parallel_mode: str,
        config: TransformerConfig,
        init_method: Callable[..., Any],
        bias: bool,
        skip_bias_add: bool,
        is_expert: bool,
        tp_group: Any,
        stride: int = 1,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self._tp_group = get_tensor_model_parallel_group_if_none(tp_group, is_expert=is_expert)
        self.tp_size, rank = self._tp_group.size(), self._tp_group.rank()
        # Of experts, the dispatcher communicates.
        self._communicates = not (
            is_expert and (self.tp_size > 1 or config.expert_model_parallel_size > 1)
        )
        self.parallel_mode = parallel_mode if self._communicates else None
        cut = 0 if parallel_mode == _COLUMN else 1
        held = [output_size, input_size]
        held[cut] //= self.tp_size
        self.out_features, self.in_features = held
        self.sequence_parallel = config.sequence_parallel and self.tp_size > 1
        self.fuse_wgrad_accumulation = config.gradient_accumulation_fusion
        self.use_bias, self.te_return_bias = bias, skip_bias_add and bias
        self.is_first_microbatch = True
        if norm:
            self._add_norm(input_size)
        self.weight = nn.Parameter(torch.empty(held, dtype=config.params_dtype))
        _initialize_affine_weight_cpu(
            self.weight,
            output_size,
            input_size,
            held[cut],
            cut,
            init_method=init_method,
            stride=stride,
            rank=rank,
            world_size=self.tp_size,
            skip_set_tensor_parallel_attributes=True,
        )
        set_tensor_model_parallel_attributes(self.weight, True, cut, stride)
        if bias:
            self._add_bias(stride)
        for parameter in self.parameters():
            parameter.allreduce = not (is_expert and config.expert_model_parallel_size > 1)

    def _add_bias(self, stride: int) -> None:
        size, kind = self.out_features, self.config.params_dtype
        self.bias = nn.Parameter(torch.zeros(size, dtype=kind))
        if self.weight.partition_dim == 0:
            set_tensor_model_parallel_attributes(self.bias, True, 0, stride)
        else:
            self.bias.sequence_parallel = self.config.sequence_parallel

    def _add_norm(self, size: int) -> None:
        config, kind = self.config, self.config.params_dtype
        self.normalization, self.eps = config.normalization, config.layernorm_epsilon
        self.zero_centered_gamma = config.layernorm_zero_centered_gamma
        start = 0.0 if self.zero_centered_gamma else 1.0
        self.layer_norm_weight = nn.Parameter(torch.full((size,), start, dtype=kind))
        self.layer_norm_weight.sequence_parallel = config.sequence_parallel
        self.layer_norm_bias = None
        if self.normalization == "LayerNorm":
            self.layer_norm_bias = nn.Parameter(torch.zeros(size, dtype=kind))
            self.layer_norm_bias.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if hasattr(self, "layer_norm_weight"):
            weight, bias = self.layer_norm_weight, self.layer_norm_bias
            x = _normalised(x, weight, bias, self.eps, self.zero_centered_gamma)
        result = self._gathered_product(x) if self.parallel_mode == _COLUMN else self._product(x)
        if self.parallel_mode == _ROW:
            reduce = reduce_from_tensor_model_parallel_region
            if self.sequence_parallel:
                reduce = reduce_scatter_to_sequence_parallel_region
            result = reduce(result, group=self._tp_group)
        self.is_first_microbatch = False
        bias = self.bias if self.use_bias else None
        if bias is not None and not self.te_return_bias:
            result = result + bias
        return result, bias if self.te_return_bias else None

    def _gathered_product(self, x: torch.Tensor) -> torch.Tensor:
        if self.tp_size == 1 or self.sequence_parallel:
            return self._product(x, sequence_parallel=self.sequence_parallel)
        if not self.weight.requires_grad:
            return self._product(copy_to_tensor_model_parallel_region(x, group=self._tp_group))
        return self._product(x, allreduce_dgrad=True)

    def _product(
        self, x: torch.Tensor, sequence_parallel: bool = False, allreduce_dgrad: bool = False
    ) -> torch.Tensor:
        product = linear_with_grad_accumulation_and_async_allreduce
        if not self.weight.requires_grad:
            product = linear_with_frozen_weight
        return product(
            input=x,
            weight=self.weight,
            bias=None,
            gradient_accumulation_fusion=self.fuse_wgrad_accumulation,
            allreduce_dgrad=allreduce_dgrad,
            sequence_parallel=sequence_parallel,
            tp_group=self._tp_group,
        )

    def backward_dw(self) -> None:
        """Weight gradients are not put off."""


class TEColumnParallelLinear(_Linear):
    _has_norm = False

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config: TransformerConfig,
        init_method: Callable[..., Any],
        gather_output: bool,
        bias: bool,
        skip_bias_add: bool,
        is_expert: bool,
        skip_weight_param_allocation: bool = False,
        tp_comm_buffer_name: str | None = None,
        tp_group: Any = None,
        stride: int = 1,
    ) -> None:
        if gather_output or skip_weight_param_allocation:
            raise ValueError("TransformerEngine's linears neither gather nor borrow a weight")
        super().__init__(
            input_size,
            output_size,
            _COLUMN,
            config,
            init_method,
            bias,
            skip_bias_add,
            is_expert,
            tp_group,
            stride,
            self._has_norm,
        )


class TELayerNormColumnParallelLinear(TEColumnParallelLinear):
    """Normalises its input, and gathers it after that."""

    _has_norm = True


class ForgetfulLayerNormColumnParallelLinear(TELayerNormColumnParallelLinear):
    """The same without the mark on the norm's parameters: wrong with sequence parallelism."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        for parameter in (self.layer_norm_weight, self.layer_norm_bias):
            if parameter is not None:
                del parameter.sequence_parallel


class TERowParallelLinear(_Linear):
    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        config: TransformerConfig,
        init_method: Callable[..., Any],
        bias: bool,
        input_is_parallel: bool,
        skip_bias_add: bool,
        is_expert: bool,
        tp_comm_buffer_name: str | None = None,
        tp_group: Any = None,
    ) -> None:
        if not input_is_parallel:
            raise ValueError("TransformerEngine's linears do not cut their input")
        super().__init__(
            input_size,
            output_size,
            _ROW,
            config,
            init_method,
            bias,
            skip_bias_add,
            is_expert,
            tp_group,
        )


def fuse(layer: ModuleSpec, forgetful: bool = False) -> None:
    """Turns a layer's local specification into what megatron-core's for TransformerEngine is."""
    fused = TELayerNormColumnParallelLinear
    if forgetful:
        fused = ForgetfulLayerNormColumnParallelLinear
    parts = layer.submodules
    attention = parts.self_attention.submodules
    parts.input_layernorm = IdentityOp
    attention.linear_qkv = fused
    attention.linear_proj = TERowParallelLinear
    for name in ("q_layernorm", "k_layernorm"):
        if getattr(attention, name) not in (None, IdentityOp):
            setattr(attention, name, TENorm)
    mlp = parts.mlp.submodules
    if hasattr(mlp, "linear_fc1"):
        parts.pre_mlp_layernorm = IdentityOp
        mlp.linear_fc1, mlp.linear_fc2 = fused, TERowParallelLinear
        return
    # A router needs what is normalised, as its experts do.
    parts.pre_mlp_layernorm = TENorm
    for block in (mlp.experts, mlp.shared_experts):
        linears = getattr(block, "submodules", None)
        if linears is not None:
            linears.linear_fc1, linears.linear_fc2 = TEColumnParallelLinear, TERowParallelLinear
