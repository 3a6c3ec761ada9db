"""What multi-latent attention lacks in the local specification.

Its core, whose values are of another width than its keys, is left to TransformerEngine: the local
specification's attention computes it too, but is not told of the width. And two gradients are wrong
under tensor parallelism, in 0.16.1: bugs of the zoo leave them so.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import megatron.core.distributed.finalize_model_grads  # noqa: F401
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.dot_product_attention import DotProductAttention

from source_edit import edited

_SHARED_KEY = """\
k_pos_emb = torch.unsqueeze(k_pos_emb, -2)

        # todo"""


class LatentDotProductAttention(DotProductAttention):
    """Megatron-core builds it twice: the block that multi-latent attention is made from knows of
    one width, and builds one that is thrown away."""

    def __init__(
        self,
        *args: Any,
        k_channels: int | None = None,
        v_channels: int | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition


def sum_gradient_of_shared_key() -> None:
    """All heads have the rotated part of the key in common, and a rank has some of the heads: its
    gradient is a sum over the ranks (Megatron-LM issue 1699)."""
    attention = multi_latent_attention.MLASelfAttention
    summed = _SHARED_KEY.replace(
        "torch.unsqueeze(k_pos_emb, -2)",
        "tensor_parallel.copy_to_tensor_model_parallel_region(torch.unsqueeze(k_pos_emb, -2))",
    )
    attention.get_query_key_value_tensors = edited(
        attention.get_query_key_value_tensors, _SHARED_KEY, summed
    )


def reduce_no_latent_norms() -> None:
    """The norm of compressed queries is called as that of single heads, whose gradients are sums
    over the ranks. Without sequence parallelism its own is whole on each."""
    # The package exports a function under its module's name, so ask for the module itself.
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    reduce = module._allreduce_non_tensor_model_parallel_grads

    def reduce_by_marks(model: Any, config: Any, tp_group: Any = None) -> None:
        config = copy.copy(config)
        config.qk_layernorm = False
        reduce(model, config, tp_group)

    module._allreduce_non_tensor_model_parallel_grads = reduce_by_marks
