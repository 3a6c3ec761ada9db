"""PL10: with sequence parallelism the auxiliary loss is tp times too large.

Each tensor-parallel rank has a part of the sequence and a part of the auxiliary loss. If each takes
its part for the whole, gradients of the router are too large, and no loss that is printed says so.

Needs: TP+SP, experts, auxiliary loss.
"""

from __future__ import annotations

from typing import Any

ID = "PL10"
TITLE = "SP: the auxiliary loss is tp times too large"
NPROC = 2
SHARED_FLAGS = ["--experts", "4", "--aux-loss", "aux_loss"]
FLAGS = ["--tp", "2", "--sp", "--etp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router(\.weight)?"],
    "direction": "backward",
    "stage": "compute",
    # What the auxiliary loss adds to the gradient is recorded nowhere by itself.
    "classes": [],
}


def inject() -> None:
    """The coefficient is multiplied by the number of ranks."""
    from megatron.core import parallel_state
    from megatron.core.transformer.moe import router

    balancing_loss = router.switch_load_balancing_loss_func

    def loss_times_ranks(*args: Any, moe_aux_loss_coeff: float, **kwargs: Any) -> Any:
        ranks = parallel_state.get_tensor_model_parallel_world_size()
        return balancing_loss(*args, moe_aux_loss_coeff=ranks * moe_aux_loss_coeff, **kwargs)

    router.switch_load_balancing_loss_func = loss_times_ranks
