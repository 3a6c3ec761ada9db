"""M7452-11: gradients of the norms of single heads are not summed over the TP ranks.

The weight that normalises each head is one for all heads, and each tensor-parallel rank has only
some of these: its gradient is a part of a sum. The step that adds up such parts used to ask whether
the run is sequence parallel. Without it the copies drift apart.

Source: Megatron-LM issue 7452 (there the gated delta net's `out_norm`). Needs: TP, norms of heads.
"""

from __future__ import annotations

from typing import Any

ID = "M7452-11"
TITLE = "TP: gradients of query and key norms not reduced"
SOURCE = "Megatron-LM issue 7452"
NPROC = 2
SHARED_FLAGS = ["--qk-layernorm"]
FLAGS = ["--tp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.self_attention\.[qk]_layernorm\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """The step that reduces these gradients does not know of norms of heads."""
    import copy
    import sys

    import megatron.core.distributed.finalize_model_grads  # noqa: F401

    # The package exports a function under its module's name, so ask for the module itself.
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    reduce_replicated = module._allreduce_non_tensor_model_parallel_grads

    def reduce_without_head_norms(model: Any, config: Any, tp_group: Any = None) -> None:
        config = copy.copy(config)
        config.qk_layernorm = False
        reduce_replicated(model, config, tp_group)

    module._allreduce_non_tensor_model_parallel_grads = reduce_without_head_norms
