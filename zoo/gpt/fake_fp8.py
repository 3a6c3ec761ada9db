"""Linears that round their operands to FP8 (e4m3) and compute on.

What TransformerEngine does on a GPU in hardware, as far as numbers go: inputs and weights are
divided by a scale, rounded, and multiplied by it again. One scale holds for a whole tensor, and
ranks that hold parts of it must agree on it. Gradients pass through the rounding and are not
rounded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

LARGEST = torch.finfo(torch.float8_e4m3fn).max


def group_of_scale() -> Any:
    """Ranks that hold parts of one tensor: of a weight, or of an input's rows or columns."""
    return parallel_state.get_tensor_and_context_parallel_group()


def scale_of(tensor: torch.Tensor) -> torch.Tensor:
    """What the tensor is divided by, so that its largest value becomes FP8's."""
    largest = tensor.detach().abs().max().float()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group_of_scale())
    return largest.clamp(min=1e-12) / LARGEST


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Through FP8 and back; the gradient is that of the tensor itself."""
    scale = scale_of(tensor)
    # Rounding of the quotient may lift it just above the largest value, which FP8 has no word for.
    quotient = (tensor.detach().float() / scale).clamp(-LARGEST, LARGEST)
    back = (quotient.to(torch.float8_e4m3fn).float() * scale).to(tensor.dtype)
    return tensor + (back - tensor).detach()


class FP8ColumnParallelLinear(ColumnParallelLinear):
    def forward(self, input_: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return super().forward(rounded(input_), rounded(self.weight), *rest, **named)


class FP8RowParallelLinear(RowParallelLinear):
    def forward(self, input_: torch.Tensor) -> Any:
        master = self.weight
        # RowParallelLinear takes its weight from itself only.
        del self._parameters["weight"]
        self.weight = rounded(master)
        try:
            return super().forward(rounded(input_))
        finally:
            del self.weight
            self._parameters["weight"] = master
