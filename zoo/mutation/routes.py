"""Faults of a router: tokens that go to other experts, or with the weights of others."""

from __future__ import annotations

import torch


def rerouted(
    weights: torch.Tensor, chosen: torch.Tensor, mechanism: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """`weights` and `chosen` are [tokens, experts]; what is not chosen weighs 0. Both as they would
    be with the fault, differentiable.

    "neighbour": to the expert after each, with the weight of the right one. "weights": to the right
    experts, each with the weight of the one chosen before it.
    """
    if mechanism == "neighbour":
        return weights.roll(1, -1), chosen.roll(1, -1)
    experts = chosen.shape[-1]
    # Chosen ones first, in order; a stable sort keeps the rest as it is.
    order = chosen.logical_not().sort(dim=-1, stable=True).indices
    count = chosen.sum(-1, keepdim=True)
    place = torch.arange(experts, device=chosen.device).expand_as(order)
    before = torch.where(place < count, (place - 1) % count.clamp(min=1), place)
    moved = weights.gather(-1, order).gather(-1, before)
    return torch.zeros_like(weights).scatter(-1, order, moved), chosen
