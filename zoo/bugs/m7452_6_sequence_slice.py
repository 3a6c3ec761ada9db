"""M7452-6: with sequence parallelism each rank takes the part of another rank's sequence.

Behind an embedding with learned positions the sequence is cut over the tensor-parallel ranks.
Sliced by the rank within another group than the one that gathers later, the parts come back in
another order. Every token is there, once, at another place.

Source: Megatron-LM issue 7452 (activations scattered over a group that is not the model's).
Needs: TP with SP, and an embedding that scatters, so learned positions.
"""

from __future__ import annotations

from typing import Any

ID = "M7452-6"
TITLE = "SP: each rank takes the sequence slice of its neighbour"
SOURCE = "Megatron-LM issue 7452"
NPROC = 2
SHARED_FLAGS = ["--positions", "learned"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    # The scatter is called by the embedding itself, after its children.
    "fqn": [r"embedding"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["X", "W"],
}


def inject() -> None:
    """Replaces `_split_along_first_dim` by one that takes the slice after the right one."""
    from megatron.core.tensor_parallel import mappings

    def split_for_the_neighbour(input_: Any, group: Any) -> Any:
        size = group.size()
        if size == 1:
            return input_
        return input_.chunk(size, dim=0)[(group.rank() + 1) % size].contiguous()

    mappings._split_along_first_dim = split_for_the_neighbour
