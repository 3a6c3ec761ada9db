"""The core of multi-latent attention, whose values are of another width than its keys.

Megatron-core leaves it to TransformerEngine: the local specification's attention computes it too,
but is not told of the width.
"""

from __future__ import annotations

from typing import Any

from megatron.core.transformer.dot_product_attention import DotProductAttention


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
