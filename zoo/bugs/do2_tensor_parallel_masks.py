"""DO2: tensor-parallel ranks drop different parts of one value.

Outside of sequence parallelism hidden states are copies on all tensor-parallel ranks, and so must
be their dropout masks. A default random state that differs from rank to rank tears them apart:
every rank goes on with a value of its own, and row-parallel sums add what does not belong together.
With dropout switched off nothing of it is left.

Source: `torch.manual_seed(seed + rank)`, as data parallelism wants it, kept under tensor
parallelism. Needs: TP without SP, dropout.
"""

from __future__ import annotations

ID = "DO2"
TITLE = "TP: copies get different dropout masks"
SOURCE = "torch.manual_seed(seed + rank) under tensor parallelism"
NPROC = 2
FLAGS = ["--tp", "2", "--dropout", "0.1"]
SHARED_FLAGS = ["--dropout", "0.1"]
EXPECT = {
    "fqn": [r"embedding\.embedding_dropout"],
    "direction": "forward",
    "stage": "compute",
    "iteration": 0,
    "classes": ["U"],
}


def inject() -> None:
    """Adds the rank to the default seed. Not the first time: on a CPU, where "the GPU's" random
    state is the only one, weights are drawn from it."""
    from megatron.core import parallel_state, tensor_parallel

    seed_all, calls = tensor_parallel.model_parallel_cuda_manual_seed, []

    def seed_by_rank(seed: int, *args: object, **kwargs: object) -> None:
        import torch

        seed_all(seed, *args, **kwargs)
        calls.append(seed)
        if len(calls) > 1:
            torch.manual_seed(seed + parallel_state.get_tensor_model_parallel_rank())

    tensor_parallel.model_parallel_cuda_manual_seed = seed_by_rank
