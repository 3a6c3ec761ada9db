"""Real, unmodified megatron-core on a CPU with gloo.

Megatron-core allocates on "the current CUDA device" and calls NCCL-shaped collectives in many
places, but nothing in its dense GPT needs a GPU. `enable()` closes exactly those gaps, in four
layers that each live in a file of their own:

* `cuda_as_cpu`: `torch.cuda` and `device="cuda"` mean the CPU;
* `gloo_gaps`: collectives that gloo refuses and NCCL accepts;
* `megatron_patches`: the few functions of megatron-core that insist on CUDA or on
  TransformerEngine;
* `fused_wgrad`: the kernel that adds weight gradients to their buffer.

Call it once, before anything else imports `megatron.core`. `cp_attention` adds the module
that megatron-core leaves to TransformerEngine, attention under context parallelism, and
`latent_attention` that of values of another width.
"""

from __future__ import annotations

import functools
import os
import sys


def set_environment() -> None:
    """What a small trainer on one machine needs, on any device. Variables that the user has set are
    respected."""
    if "--compile" not in sys.argv:
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # What Megatron-LM's launch scripts set, and megatron-core warns about where it is missing.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")


@functools.cache  # once: what it replaces would be replaced again
def enable() -> None:
    """Makes this process able to import and train megatron-core on its CPU.

    Environment variables that the user has set are respected.
    """
    set_environment()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from megatron_cpu import cuda_as_cpu, fused_wgrad, gloo_gaps

    cuda_as_cpu.install()
    gloo_gaps.install()
    fused_wgrad.install()

    # Imported only now: megatron.core looks at torch.cuda while its modules are being imported.
    from megatron_cpu import megatron_patches

    megatron_patches.install()
