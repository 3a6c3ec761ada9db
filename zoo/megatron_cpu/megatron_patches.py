"""The functions of megatron-core that insist on CUDA or on TransformerEngine's modules.

Nothing here changes what is computed: each patch lets an existing path run on a CPU.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from typing import Any

# No news on a CPU: that TransformerEngine and Apex are missing. Not ours to change: a default of
# megatron-core's own configuration, and the older names of collectives that it calls.
warnings.filterwarnings("ignore", message=".*Apex (is|are) not installed")
warnings.filterwarnings("ignore", message="full scope is deprecated")
warnings.filterwarnings("ignore", message="`torch.distributed.*` is deprecated")

import torch
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.torch_norm import WrappedTorchNorm


def _use_the_only_generator() -> None:
    """Megatron's tracker of GPU random states keeps those of torch's default generator, or
    generators that take its place in turn. On a CPU none can: it is given their states, and they
    get them back."""
    in_place = torch.Generator()  # whose numbers the default generator draws

    def get_state(
        device: Any = "cuda", clone: bool = False, graph_safe: bool = False
    ) -> torch.Tensor | torch.Generator:
        if not graph_safe:
            return torch.get_rng_state()
        in_place.set_state(torch.get_rng_state())
        return in_place.clone_state() if clone else in_place

    def set_state(
        state: torch.Tensor | torch.Generator, device: Any = -1, graph_safe: bool = False
    ) -> None:
        nonlocal in_place
        if isinstance(state, torch.Generator):
            in_place.set_state(torch.get_rng_state())
            in_place, state = state, state.get_state()
        torch.set_rng_state(state)

    megatron_random._get_cuda_rng_state = get_state
    megatron_random._set_cuda_rng_state = set_state
    # The tracker warns when the CPU's generator moves inside its fork. Here it must.
    logging.getLogger(megatron_random.__name__).setLevel(logging.ERROR)


def _allow_sequence_parallel_norms() -> None:
    """The norm of the local specification refuses sequence parallelism, for one reason only:
    it does not mark its parameters, whose gradients must then be summed over the tensor-parallel
    group. TransformerEngine's and Apex's norms do; with the mark, torch's norm is right too.
    """
    build = WrappedTorchNorm.__new__

    def build_marked(cls: type, config: Any, *args: Any, **kwargs: Any) -> torch.nn.Module:
        sequence_parallel = config.sequence_parallel
        config.sequence_parallel = False
        try:
            norm = build(cls, config, *args, **kwargs)
        finally:
            config.sequence_parallel = sequence_parallel
        for parameter in norm.parameters():
            parameter.sequence_parallel = sequence_parallel
        return norm

    WrappedTorchNorm.__new__ = staticmethod(build_marked)


def _keep_expert_counts_on_cpu() -> None:
    """The expert dispatcher turns counts into lists only while it moves them off a GPU."""

    def to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    # token_dispatcher has copied the name, so that both modules hold one.
    moe_utils.maybe_move_tensor_to_cpu = to_cpu
    token_dispatcher.maybe_move_tensor_to_cpu = to_cpu


class _NoFP8:
    """TransformerEngine's answer where nothing runs in FP8."""

    @staticmethod
    def is_fp8_enabled() -> bool:
        return False


def _ask_nobody_about_fp8() -> None:
    """Three parts of 0.16.1 take TransformerEngine for installed where it is not: what recomputes a
    module's output asks it whether FP8 is on, latent attention for the class of its linears, and
    the router for a product of matrices."""
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    if not hasattr(megatron_random, "FP8GlobalStateManager"):
        megatron_random.FP8GlobalStateManager = _NoFP8
        megatron_random.activation_recompute_forward = lambda **unused: contextlib.nullcontext()
        megatron_random.fp8_autocast = lambda **unused: contextlib.nullcontext()
    if not isinstance(getattr(multi_latent_attention, "TELinear", object), type):
        multi_latent_attention.HAVE_TE = False


def install_what_te_has() -> None:
    """Of the patches those that are needed on any device where TransformerEngine is missing."""
    _allow_sequence_parallel_norms()
    _ask_nobody_about_fp8()


def install() -> None:
    """Patches megatron-core. To be called once, before a model is built."""
    install_what_te_has()
    _use_the_only_generator()
    _keep_expert_counts_on_cpu()
