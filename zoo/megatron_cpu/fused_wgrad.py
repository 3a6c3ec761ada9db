"""The kernel that multiplies out a weight's gradient and adds it to `main_grad` in one step.

Megatron-core takes it from a CUDA extension of Apex, which it looks for by name when it is
imported. This one computes the same on a CPU: products of what it is given, sums in the type of
what they are added to.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch

_NAME = "fused_weight_gradient_mlp_cuda"


def _add_product(
    total_input: torch.Tensor, grad_output: torch.Tensor, main_grad: torch.Tensor
) -> None:
    """main_grad += grad_output^T x input, of rows that are flattened already."""
    kind = main_grad.dtype
    main_grad.addmm_(grad_output.to(kind).t(), total_input.to(kind))


def install() -> None:
    """To be called before megatron-core is imported."""
    module = ModuleType(_NAME)
    module.wgrad_gemm_accum_fp32 = _add_product  # type: ignore[attr-defined]
    module.wgrad_gemm_accum_fp16 = _add_product  # type: ignore[attr-defined]
    sys.modules[_NAME] = module
