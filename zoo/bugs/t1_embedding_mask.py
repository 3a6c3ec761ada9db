"""T1: the vocabulary-parallel embedding does not zero the rows of other ranks' tokens.

Each tensor-parallel rank owns a range of the vocabulary. It looks up every token, must zero the
rows of tokens that it does not own, and the all-reduce then adds one real row to zeros. Without
the zeroing, row 0 of each rank's range is added to every token of another rank. Shapes, loss and
its curve stay plausible: the loss of the first step hardly moves.

Source: bug 1 of the table in the TTrace paper (arXiv 2506.09280). Needs: TP.
"""

from __future__ import annotations

ID = "T1"
TITLE = "TP embedding: rows of tokens of other ranks are not zeroed"
SOURCE = "arXiv 2506.09280, bug 1"
NPROC = 2
FLAGS = ["--tp", "2"]
EXPECT = {
    "fqn": [r"embedding\.word_embeddings"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["W"],
}


def inject() -> None:
    """Replaces `VocabParallelEmbedding.forward` by one without the second masking."""
    import torch
    from megatron.core.tensor_parallel import layers, mappings

    def forward(self: layers.VocabParallelEmbedding, input_: torch.Tensor) -> torch.Tensor:
        owned = (input_ >= self.vocab_start_index) & (input_ < self.vocab_end_index)
        rows = torch.where(owned, input_ - self.vocab_start_index, 0)
        output = torch.nn.functional.embedding(rows, self.weight)
        # Here the rows of tokens that are not owned should become zero.
        # Before 0.13 there is one group, which nobody is told.
        group = {"group": self.tp_group} if hasattr(self, "tp_group") else {}
        if self.reduce_scatter_embeddings:
            output = output.transpose(0, 1).contiguous()
            return mappings.reduce_scatter_to_sequence_parallel_region(output, **group)
        return mappings.reduce_from_tensor_model_parallel_region(output, **group)

    layers.VocabParallelEmbedding.forward = forward
