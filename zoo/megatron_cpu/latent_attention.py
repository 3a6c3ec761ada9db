"""The core of multi-latent attention, whose values are of another width than its keys.

Megatron-core leaves it to TransformerEngine: the local specification's attention computes it too,
but is not told of the width.
"""

from __future__ import annotations

from typing import Any

from megatron.core.transformer.dot_product_attention import DotProductAttention


class LatentDotProductAttention(DotProductAttention):
    def __init__(self, *args: Any, k_channels: int, v_channels: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition
