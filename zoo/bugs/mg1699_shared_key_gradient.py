"""MG1699: latent attention's shared part of the key gets the gradient of one rank's heads.

Multi-latent attention rotates one key that all heads have in common, and each tensor-parallel rank
has some of the heads: the gradient of that key is a sum over the ranks. With column-parallel
projections the key was gathered from all ranks, and the backward of that takes a rank's own columns
of what it is given, without a sum. The compressed keys and values beside it are right: a
column-parallel linear follows them, which adds up.

megatron-core 0.16.1 as it is released, with the local specification: the zoo repairs it
(`megatron_cpu/latent_attention.py`), and this bug does not.

Source: Megatron-LM issue 1699. Needs: TP, latent attention.
"""

from __future__ import annotations

ID = "MG1699"
TITLE = "TP: gradient of latent attention's shared key is that of one rank's heads"
SOURCE = "Megatron-LM issue 1699"
NPROC = 2
SHARED_FLAGS = ["--mla"]
FLAGS = ["--tp", "2", "--sp", *SHARED_FLAGS]
EXPECT = {
    # What arrives at the projection is wrong, between modules of the attention.
    "fqn": [r"decoder\.layers\.\d+\.self_attention"],
    "direction": "backward",
    "stage": "compute",
    # A rank's columns are wrong in themselves: nothing says that other ranks have what is missing.
    "classes": [None],
}


def inject() -> None:
    """The model is built without the repair."""
    from megatron_cpu import latent_attention

    latent_attention.sum_gradient_of_shared_key = lambda: None
