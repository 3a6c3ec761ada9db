"""An fp32 rerun computes what the low-precision run does, hooks of the user's included."""

from __future__ import annotations

import torch
from torch import nn

from ttrace.adapters.megatron.fp32 import full_precision


def linear() -> nn.Linear:
    """With the gradient buffers that Megatron's DistributedDataParallel makes."""
    module = nn.Linear(4, 3, dtype=torch.bfloat16)
    for parameter in module.parameters():
        parameter.main_grad = torch.zeros(parameter.shape)
    return module


def gradients_of_a_rerun(module: nn.Linear) -> list[torch.Tensor]:
    for parameter in module.parameters():
        parameter.main_grad.zero_()
    with full_precision([module]):
        output = module(torch.ones(2, 4))
        assert output.dtype == torch.float32
        output.square().sum().backward()
    assert module.weight.dtype == torch.bfloat16
    return [parameter.main_grad.clone() for parameter in module.parameters()]


def test_gradients_arrive_in_the_buffers_of_the_originals() -> None:
    weight, bias = gradients_of_a_rerun(linear())
    assert weight.abs().sum() > 0
    assert bias.abs().sum() > 0


def test_hooks_on_a_parameters_gradient_act_in_the_rerun_and_stay_on_the_original() -> None:
    module = linear()
    weight, bias = gradients_of_a_rerun(module)
    handle = module.weight.register_hook(lambda gradient: 2 * gradient)
    twice, same = gradients_of_a_rerun(module)
    assert torch.equal(twice, 2 * weight)
    assert torch.equal(same, bias)
    handle.remove()
    assert torch.equal(gradients_of_a_rerun(module)[0], weight)


def test_frozen_parameters_stay_frozen() -> None:
    module = linear()
    module.weight.requires_grad_(False)
    weight, bias = gradients_of_a_rerun(module)
    assert weight.abs().sum() == 0
    assert bias.abs().sum() > 0


class _FusedLinear(torch.autograd.Function):
    """As Megatron's linear with gradient_accumulation_fusion: the weight's gradient is added to
    main_grad where it is computed, and autograd is given memory that nobody has written."""

    @staticmethod
    def forward(ctx, values, weight):
        ctx.save_for_backward(values, weight)
        return values @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        values, weight = ctx.saved_tensors
        weight.main_grad.add_(gradient.t() @ values)
        weight.grad_added_to_main_grad = True
        return gradient @ weight, torch.full_like(weight, 1e30)


class FusedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4, dtype=torch.bfloat16))
        self.weight.main_grad = torch.zeros(3, 4)
        self.weight.grad_added_to_main_grad = False

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return _FusedLinear.apply(values, self.weight)


def test_a_gradient_that_a_fused_kernel_has_added_is_not_added_again() -> None:
    module = FusedLinear()
    (gradient,) = gradients_of_a_rerun(module)
    assert torch.equal(gradient, torch.full((3, 4), 16.0))
    assert module.weight.grad_added_to_main_grad is False
