"""MC1: without sequence parallelism the gradient of latent attention's query norm is tp times too
large.

megatron-core sums the gradients of `q_layernorm` and `k_layernorm` over the tensor-parallel ranks,
by these names, because norms of heads see some of the heads on each rank. The norm of latent
attention's compressed queries has the same name and another place: every rank normalises the same
rows, behind an input gradient that is a whole sum already.

megatron-core 0.16.1 as it is released: the zoo repairs it (`megatron_cpu/latent_attention.py`), and
this bug does not.

Source: `_allreduce_non_tensor_model_parallel_grads` of megatron-core 0.16.1. Needs: TP without SP,
latent attention with norms.
"""

from __future__ import annotations

ID = "MC1"
TITLE = "TP: gradient of latent attention's query norm is tp times too large"
SOURCE = "megatron-core 0.16.1, `finalize_model_grads`"
NPROC = 2
SHARED_FLAGS = ["--mla", "--qk-layernorm"]
FLAGS = ["--tp", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.self_attention\.q_layernorm\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["K"],
    "factor": 2.0,
}


def inject() -> None:
    """The model is built without the repair."""
    from megatron_cpu import latent_attention

    latent_attention.reduce_no_latent_norms = lambda: None
