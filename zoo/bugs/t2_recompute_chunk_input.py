"""T2: with uniform recomputation every layer of a chunk is given the chunk's input.

Activations are kept only where a chunk of layers begins, and the chunk runs again in backward. Its
function must hand each layer's output to the next one; here each layer gets what the chunk got, so
that only the last layer of a chunk counts. The others are computed, dropped and not trained.
Chunks of one layer hide it.

Source: Megatron-LM pull request 290 (fc2c81d3a6), again in core: 6771c7734a. Needs: recompute of
several layers at once.
"""

from __future__ import annotations

from typing import Any

ID = "T2"
TITLE = "Recompute: every layer of a chunk gets the chunk's input"
SOURCE = "Megatron-LM pull request 290; fixes fc2c81d3a6, 6771c7734a"
NPROC = 2
SHARED_FLAGS = ["--recompute", "--recompute-layers", "2"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    # The block's own code, between its layers. Layer 1 computes rightly what it was given.
    "fqn": [r"decoder"],
    # Nothing reaches layers 0 and 2 backward, in isolation either.
    "affected": [r"decoder\.layers\.[13]", r"decoder\.layers\.[02]\..+\.(weight|bias)"],
    "direction": "forward",
    "stage": "compute",
    # The value is another one of this run, and the gradients of layers 0 and 2 are zero.
    "classes": ["S", "W", "M"],
}


def inject() -> None:
    """Replaces `TransformerBlock._checkpointed_forward` by one whose chunks do not chain."""
    from megatron.core import tensor_parallel
    from megatron.core.transformer.transformer_block import TransformerBlock

    def checkpointed_forward(
        self: TransformerBlock,
        hidden_states: Any,
        attention_mask: Any,
        context: Any,
        context_mask: Any,
        rotary_pos_emb: Any,
        *unused: Any,
        **unused_too: Any,
    ) -> Any:
        length = self.config.recompute_num_layers

        def chunk(first: int) -> Any:
            def run(chunk_input: Any, mask: Any, context: Any, context_mask: Any, rope: Any) -> Any:
                for index in range(first, first + length):
                    # Here the next layer should get `output`.
                    output, context = self._get_layer(index)(
                        hidden_states=chunk_input,
                        attention_mask=mask,
                        context=context,
                        context_mask=context_mask,
                        rotary_pos_emb=rope,
                    )
                return output, context

            return run

        for first in range(0, self.num_layers_per_pipeline_rank, length):
            hidden_states, context = tensor_parallel.checkpoint(
                chunk(first),
                self.config.distribute_saved_activations,
                hidden_states,
                attention_mask,
                context,
                context_mask,
                rotary_pos_emb,
            )
        return hidden_states

    TransformerBlock._checkpointed_forward = checkpointed_forward
