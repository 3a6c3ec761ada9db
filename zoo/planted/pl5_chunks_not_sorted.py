"""PL5: rows that arrive from several ranks are not sorted by local expert.

Each rank sends a chunk for each expert. Read in the order of arrival, the second expert's rows from
the first rank are taken for the first expert's from the second.

Needs: EP, several experts on a rank.
"""

from __future__ import annotations

from typing import Any

ID = "PL5"
TITLE = "EP: chunks of ranks are not sorted by local expert"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp(\.experts.*)?"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["X"],
}


def inject() -> None:
    """After construction the dispatcher's order of chunks is that of arrival."""
    import torch
    from megatron.core.transformer.moe import token_dispatcher

    kind = token_dispatcher.MoEAlltoAllTokenDispatcher
    construct = kind.__init__

    def construct_unsorted(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        self.sort_input_by_local_experts = torch.arange(self.num_experts * self.tp_size)
        self.restore_output_by_local_experts = torch.arange(self.num_experts * self.tp_size)

    kind.__init__ = construct_unsorted
