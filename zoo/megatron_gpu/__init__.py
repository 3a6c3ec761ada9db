"""Real, unmodified megatron-core on one GPU that all ranks share.

NCCL refuses two ranks on one device, so the ranks talk through gloo, which takes tensors of the
host: `through_host` copies them there and back. All else runs on the GPU as megatron-core wrote it;
what TransformerEngine would bring is missing here as it is on a CPU (`megatron_cpu`).

Call `enable()` once, before anything else imports `megatron.core`.
"""

from __future__ import annotations

import megatron_cpu


def enable() -> None:
    """Makes this process able to import and train megatron-core on the first GPU.

    Environment variables that the user has set are respected.
    """
    megatron_cpu.set_environment()

    import torch

    from megatron_cpu import fused_wgrad, gloo_gaps
    from megatron_gpu import through_host

    torch.cuda.set_device(0)
    through_host.install()
    gloo_gaps.install()
    fused_wgrad.install()

    # Imported only now: it imports megatron.core.
    from megatron_cpu import megatron_patches

    megatron_patches.install_what_te_has()
