"""Gradients of experts that every tensor-parallel rank has whole are summed over these ranks.

The linears of an expert are kept out of the dense parameters' gradient buffers only if experts are
spread over ranks (EP > 1). With one expert-parallel rank and expert tensor parallelism of 1, while
the rest of the model is cut over tensor-parallel ranks, each of these has seen other tokens, and
the dense buffers' group, data parallelism, does not contain them. The experts' own buffers are
reduced over the right group in every topology.
"""

from __future__ import annotations


def apply() -> None:
    from megatron.core.tensor_parallel import layers

    from source_edit import edited

    for linear in (layers.ColumnParallelLinear, layers.RowParallelLinear):
        made = edited(
            linear.__init__,
            'setattr(self.weight, "allreduce", not (self.is_expert and self.expert_parallel))',
            'setattr(self.weight, "allreduce", not self.is_expert)',
        )
        linear.__init__ = made
