"""PL9: each data-parallel rank counts its own tokens for the expert bias.

The update of the bias needs the number of tokens of all ranks. Counted over the tensor-parallel
ranks only, copies of the bias drift apart.

Needs: DP, experts, expert bias, the second step.
"""

from __future__ import annotations

ID = "PL9"
TITLE = "Router: tokens are counted on each rank for itself"
NPROC = 2
SHARED_FLAGS = ["--experts", "4", "--expert-bias"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp\.router"],
    # The bias itself is not recorded: its router is the first that uses it.
    "direction": "forward",
    "stage": "compute",
    "iteration": 1,
    "classes": [],
}


def inject() -> None:
    """Another group."""
    import sys

    import megatron.core.distributed.finalize_model_grads  # noqa: F401

    from source_edit import edited

    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    module.get_updated_expert_bias = edited(
        module.get_updated_expert_bias,
        "parallel_state.get_tensor_and_data_parallel_group(with_context_parallel=True)",
        "parallel_state.get_tensor_model_parallel_group()",
    )
