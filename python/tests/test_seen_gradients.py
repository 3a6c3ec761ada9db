"""Whether a gradient changed is told apart from whether those beside it did."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ttrace
from test_torch_native import notes
from ttrace.adapters.torch.seen_gradients import Seen, shared_storages, storage_of


def views():
    flat = torch.arange(1.0, 7.0)
    return flat[:2], flat[2:]


def test_only_gradients_in_one_storage_share_their_count():
    first, second = views()
    alone, sparse = torch.ones(2), torch.eye(2).to_sparse()
    assert shared_storages([first, second, alone, sparse, sparse]) == {storage_of(first)}


def test_a_change_of_a_gradient_is_none_of_those_beside_it():
    first, second = views()
    seen = [Seen(gradient, shares_count=True) for gradient in (first, second)]
    first.mul_(2)
    assert seen[0].differs_from(first)
    assert not seen[1].differs_from(second)
    second.neg_()  # its norm stays
    assert seen[1].differs_from(second)


def test_a_gradient_that_is_not_finite_is_what_it_was():
    first, second = views()
    second[0] = float("nan")
    seen = Seen(second, shares_count=True)
    first.mul_(2)
    assert not seen.differs_from(second)


def test_by_itself_any_change_in_place_and_any_other_tensor_counts():
    gradient = torch.ones(2)
    seen = Seen(gradient, shares_count=False)
    assert not seen.differs_from(gradient)
    assert seen.differs_from(gradient.clone())
    gradient.mul_(1)
    assert seen.differs_from(gradient)


def nothing(parameters):
    pass


def halve(parameters):
    for parameter in parameters:
        parameter.grad.mul_(0.5)


@pytest.mark.parametrize("change", [nothing, halve])
def test_two_optimizers_may_have_gradients_in_one_bucket(tmp_path, change):
    """As DistributedDataParallel keeps them with gradient_as_bucket_view=True."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    flat, begin = torch.zeros(sum(p.numel() for p in model.parameters())), 0
    for parameter in model.parameters():
        parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model]
    ttrace.attach(model, optimizers, out=str(tmp_path))
    for _ in range(3):
        model(torch.randn(4, 4)).square().mean().backward()
        for layer, optimizer in zip(model, optimizers, strict=True):
            if layer is model[1]:
                change(layer.parameters())
            nn.utils.clip_grad_norm_(layer.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    found = [
        [key for key in note["values"] if "gradients" in key]
        for note in notes(tmp_path, "optimizer_group")
    ]
    early = ["gradients changed before they were recorded"]
    assert found == [[], early if change is halve else []] * 2
