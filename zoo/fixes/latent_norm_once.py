"""The gradient of a norm of latent attention's compressed queries is not summed over
tensor-parallel ranks that all have the whole of it.

The sum is for norms of single heads, of which a rank has some, and goes by the name `q_layernorm`,
which the norm of the compressed queries has too. With sequence parallelism it is marked, and summed
for that.
"""

from __future__ import annotations

import importlib


def apply() -> None:
    from source_edit import edited

    # The package has a function of the module's name.
    module = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    module._allreduce_non_tensor_model_parallel_grads = edited(
        module._allreduce_non_tensor_model_parallel_grads,
        "config.qk_layernorm and (",
        "config.qk_layernorm and not config.multi_latent_attention and (",
    )
