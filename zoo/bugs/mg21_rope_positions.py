"""MG21: under context parallelism every rank uses the rotary angles of the first positions.

Each rank holds two chunks of the sequence, one from its start and one from its end, and needs the
angles of those. Here all ranks take the angles of positions 0, 1, 2, ... Shapes are right, and at
initialisation attention hardly depends on angles, so that the loss does not show it.

Source: Megatron-LM pull request 5243 (d30e165203), there for packed sequences. Needs: CP.
"""

from __future__ import annotations

from typing import Any

ID = "MG21"
TITLE = "CP: rotary angles of the first positions on every rank"
SOURCE = "Megatron-LM pull request 5243; fix d30e165203"
NPROC = 2
FLAGS = ["--cp", "2"]
EXPECT = {
    "fqn": [r"rotary_pos_emb"],
    "direction": "forward",
    "stage": "compute",
    # Each rank has a part of the table, but not its own.
    "classes": ["W", "X"],
}


def inject() -> None:
    """Replaces the function that picks a rank's angles by one that cuts off the first ones."""
    from megatron.core.models.common.embeddings import rotary_pos_embedding

    def first_positions(angles: Any, seq_dim: int, cp_group: Any) -> Any:
        return angles.narrow(seq_dim, 0, angles.shape[seq_dim] // cp_group.size())

    rotary_pos_embedding.get_pos_emb_on_this_cp_rank = first_positions
