"""Learned attention sinks are marked as cut over tensor-parallel ranks, so that the gradient norm
counts those of all ranks."""

from __future__ import annotations

from typing import Any


def apply() -> None:
    from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    begin = DotProductAttention.__init__

    def begin_marked(self: Any, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        if self.config.softmax_type == "learnable":
            set_tensor_model_parallel_attributes(self.softmax_offset, True, 0, 1)

    DotProductAttention.__init__ = begin_marked
