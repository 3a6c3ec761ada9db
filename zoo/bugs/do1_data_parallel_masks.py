"""DO1: data-parallel ranks draw the same dropout masks.

All ranks seed alike after the weights are made, so that different rows of the batch lose the same
values: dropout averages over fewer masks than the batch has rows. No tensor shows it, because every
single mask is a good one.

Source: accelerate's `set_seed` without `device_specific`, and every script that calls
`torch.manual_seed(seed)` on all ranks alike. Needs: DP, dropout.
"""

from __future__ import annotations

ID = "DO1"
TITLE = "DP: one dropout mask for all ranks"
SOURCE = "torch.manual_seed(seed) on every rank alike"
NPROC = 2
FLAGS = ["--dropout", "0.1"]
SHARED_FLAGS = ["--dropout", "0.1"]
EXPECT = {
    "fqn": [r"embedding\.embedding_dropout"],
    "direction": "forward",
    "stage": "compute",
    "iteration": 0,
    "classes": ["U"],
}


def inject() -> None:
    """Leaves data-parallel coordinates out of the seed of the states that dropout draws from."""
    from megatron.core import parallel_state

    rank = parallel_state.get_data_parallel_rank

    def same_rank(with_context_parallel: bool = False, **kwargs: object) -> int:
        # Asked with context parallelism only where seeds are made.
        if with_context_parallel:
            return 0
        return rank(with_context_parallel=with_context_parallel, **kwargs)

    parallel_state.get_data_parallel_rank = same_rank
