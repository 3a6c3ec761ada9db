"""T11: under sequence parallelism layernorm gradients are not summed over the TP ranks.

With sequence parallelism each tensor-parallel rank normalises its own part of the sequence, so
that its gradients of the norm's (replicated) parameters, and of the biases added there, are
partial sums. Without the final all-reduce the copies drift apart from the second step on. The
first loss is equal to the last bit.

Source: Megatron-LM issue 1446, fix 20b7a5489d. Needs: TP with SP.
"""

from __future__ import annotations

from typing import Any

ID = "T11"
TITLE = "SP: layernorm gradients not reduced over TP"
SOURCE = "Megatron-LM issue 1446; fix 20b7a5489d"
NPROC = 2
FLAGS = ["--tp", "2", "--sp"]
EXPECT = {
    # The same call also reduces the biases that are added within the sequence-parallel region.
    "fqn": [r".*layernorm\.(weight|bias)", r".+\.linear_(proj|fc2)\.bias"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """Replaces the step that reduces these gradients by one that does nothing."""
    import sys

    import megatron.core.distributed.finalize_model_grads  # noqa: F401

    # The package exports a function under its module's name, so ask for the module itself.
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]

    def reduce_nothing(model: Any, config: Any, tp_group: Any = None) -> None:
        return None

    name = "_allreduce_non_tensor_model_parallel_grads"
    # Before 0.13 under the name of the parameters that it was first written for.
    name = name if hasattr(module, name) else "_allreduce_layernorm_grads"
    setattr(module, name, reduce_nothing)
