"""What `megatron.training` needs on a CPU, beyond what `megatron_cpu` does for megatron.core.

Nothing here changes what is computed. Each function closes one gap and says why there is one.
"""

from __future__ import annotations

import collections
import importlib.metadata
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

import megatron_cpu


def enable() -> None:
    """To be called once, with the checkout first on sys.path, before it is imported."""
    _pretend_that_a_gpu_is_there()
    _stand_in_for_triton()
    megatron_cpu.enable()
    _use_compiled_dataset_helpers()
    _build_no_kernels()
    _keep_random_numbers_of_loaders_apart()
    _attend_under_context_parallelism()


def _pretend_that_a_gpu_is_there() -> None:
    """Megatron-LM asserts that there is CUDA, counts devices and reports their memory."""
    import torch

    cuda = torch.cuda
    device = types.SimpleNamespace(name="CPU", major=8, minor=0, total_memory=1 << 36)
    cuda.is_available = lambda: True
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.get_device_properties = lambda *args, **kwargs: device
    cuda.memory_stats = lambda *args, **kwargs: collections.defaultdict(int)
    cuda.max_memory_reserved = cuda.device_memory_used = lambda *args, **kwargs: 0


def _stand_in_for_triton() -> None:
    """initialize.py imports kernels written in triton; they are only used if asked for."""
    if importlib.util.find_spec("triton") is not None:
        return
    kernels = types.ModuleType("megatron.core.transformer.custom_layers.batch_invariant_kernels")
    kernels.is_batch_invariant_mode_enabled = lambda: False
    kernels.enable_batch_invariant_mode = _not_on_a_cpu
    sys.modules[kernels.__name__] = kernels


def _not_on_a_cpu(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError("this needs a GPU")


def _use_compiled_dataset_helpers() -> None:
    """A checkout holds the source of its index builder, and compiles it in place when a run starts.
    The installed megatron-core of the same version has it compiled."""
    name = "megatron.core.datasets.helpers_cpp"
    if importlib.util.find_spec(name) is None:
        files = importlib.metadata.files("megatron-core") or []
        path = next(file for file in files if Path(file).name.startswith("helpers_cpp."))
        spec = importlib.util.spec_from_file_location(name, path.locate())
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module

    import megatron.core.datasets.utils

    megatron.core.datasets.utils.compile_helpers = lambda: None


def _build_no_kernels() -> None:
    """The legacy CUDA kernels would be built at every start."""
    import megatron.legacy.fused_kernels

    megatron.legacy.fused_kernels.load = lambda args: None


def _keep_random_numbers_of_loaders_apart() -> None:
    """A loader draws a seed from the CPU's generator whenever it is iterated, and only the first
    rank of a tensor-parallel group has loaders. Here the CPU's generator is the GPU's too, so that
    this would shift the masks of dropout on one rank."""
    import torch
    from torch.utils.data import DataLoader

    iterate = DataLoader.__iter__

    def iterate_and_put_back(self: Any) -> Any:
        state = torch.get_rng_state()
        try:
            return iterate(self)
        finally:
            torch.set_rng_state(state)

    DataLoader.__iter__ = iterate_and_put_back


def _attend_under_context_parallelism() -> None:
    """The local specification's attention refuses context parallelism: TransformerEngine's is the
    one that has it."""
    if "--context-parallel-size" not in sys.argv:
        return
    from megatron.core.models import backends

    from megatron_cpu.cp_attention import ContextParallelDotProductAttention

    backends.DotProductAttention = ContextParallelDotProductAttention
