"""Causal attention under context parallelism, in plain torch.

Megatron-core leaves this module to TransformerEngine. As there, each rank holds the queries of
two chunks of the sequence, one from its start and one from its end ("zigzag": chunks r and
2 cp - 1 - r), because under a causal mask late positions cost more. Keys and values of all ranks
are gathered; in backward each rank has gradients for *all* of them, so these are summed over the
ranks and scattered back to their owners.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer.module import MegatronModule

try:
    from megatron.core.transformer.utils import is_layer_window_attention
except ImportError:  # older versions give every layer the window

    def is_layer_window_attention(window: Any, skip: Any, layer_number: int) -> bool:
        return window is not None


# Large enough to vanish after the softmax, small enough for a half-precision score.
_MASKED = -10000.0


def zigzag_positions(rank: int, size: int, length: int) -> torch.Tensor:
    """The global positions of a rank's `length` rows, in the order in which it holds them."""
    chunk = length // 2
    first = torch.arange(chunk)
    return torch.cat([first + rank * chunk, first + (2 * size - 1 - rank) * chunk])


def gather_sequence(tensor: torch.Tensor, group: torch.distributed.ProcessGroup) -> torch.Tensor:
    """Rows of all ranks, in rank order. Backward: the sum over the ranks, own rows only."""
    return gather_from_sequence_parallel_region(
        tensor.contiguous(), tensor_parallel_output_grad=True, group=group
    )


class ContextParallelDotProductAttention(MegatronModule):
    """Drop-in for `core_attention` of the local specification. No child modules, as the fused
    attention of TransformerEngine has none."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        **groups: Any,  # under a name that changes between versions
    ) -> None:
        super().__init__(config=config)
        head_size = config.kv_channels
        self.softmax_scale = softmax_scale or 1.0 / math.sqrt(head_size)
        self.dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        self.cp_group = parallel_state.get_context_parallel_group()
        self.window = None
        if is_layer_window_attention(
            config.window_size, getattr(config, "window_attn_skip_freq", None), layer_number
        ):
            self.window, ahead = config.window_size
            if ahead:
                raise NotImplementedError("a window of attention that reaches ahead, under CP")

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        """[rows, batch, heads, head size] each; returns [rows, batch, heads * head size]."""
        if attention_bias is not None or packed_seq_params is not None:
            raise NotImplementedError("bias and packed sequences of attention under CP")
        size, rank, rows = self.cp_group.size(), self.cp_group.rank(), query.size(0)

        held = torch.cat([zigzag_positions(owner, size, rows) for owner in range(size)])
        in_order = torch.argsort(held)
        key = gather_sequence(key, self.cp_group)[in_order]
        value = gather_sequence(value, self.cp_group)[in_order]

        queries_per_group = query.size(2) // key.size(2)
        if queries_per_group > 1:
            key = key.repeat_interleave(queries_per_group, dim=2)
            value = value.repeat_interleave(queries_per_group, dim=2)

        # The softmax is in fp32, as in the local specification's.
        scores = torch.einsum("sbhd,tbhd->bhst", query, key).float() * self.softmax_scale
        here = zigzag_positions(rank, size, rows)
        back = here[:, None] - torch.arange(rows * size)[None, :]
        hidden = back < 0 if self.window is None else (back < 0) | (back > self.window)
        weights = scores.masked_fill(hidden, _MASKED).softmax(dim=-1).to(value.dtype)
        weights = self._dropped(weights)
        context = torch.einsum("bhst,tbhd->sbhd", weights, value)
        return context.reshape(rows, context.size(1), -1)

    def _dropped(self, weights: torch.Tensor) -> torch.Tensor:
        """As in the local specification's: heads of other ranks drop other weights."""
        if self.config.sequence_parallel:
            return torch.nn.functional.dropout(weights, self.dropout, self.training)
        with get_cuda_rng_tracker().fork():
            return torch.nn.functional.dropout(weights, self.dropout, self.training)
