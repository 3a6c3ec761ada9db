"""What a router makes of all tokens that it sees at once: with others beside it, a token is treated
otherwise, so that runs which cut the batch otherwise compute different functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ttrace.adapters.megatron.model import Model

_SAME_CUT = "micro-batches of the same size"
_SAME_PART = f"{_SAME_CUT}, and the same tensor (with sequence parallelism) and context parallelism"


def note_router_function(model: Model, router: Any, logits: torch.Tensor) -> None:
    """Once a name: `logits` have a row for each token that this router sees in this call."""
    for name, tokens, option in _functions(model, router.config, logits.shape[:-1].numel()):
        if name not in model.router_functions:
            model.router_functions.add(name)
            model.session.note("computation", name=name, value=tokens, option=option)


def _functions(model: Model, config: Any, tokens: int) -> Iterator[tuple[str, int, str]]:
    size = model.topology.size
    of_sequences = tokens * size["cp"] * (size["tp"] if model.topology.sequence_parallel else 1)
    kinds = _auxiliary_losses(config)
    if "aux_loss" in kinds:
        yield "tokens in a router's auxiliary loss", of_sequences, _SAME_CUT
    if "global_aux_loss" in kinds:
        option = f"{_SAME_CUT} times data-parallel ranks"
        yield "tokens in a router's global auxiliary loss", of_sequences * size["dp"], option
    if "sinkhorn" in kinds:
        yield "tokens that a router balances (sinkhorn)", tokens, _SAME_PART
    if getattr(config, "moe_expert_capacity_factor", None) is not None:
        yield "tokens among which an expert's capacity is shared", tokens, _SAME_PART


def _auxiliary_losses(config: Any) -> set[str]:
    """The names of those that are switched on, and of routing itself."""
    kinds = config.moe_router_load_balancing_type
    if isinstance(kinds, str):
        kinds = [kinds]
    weights = config.moe_aux_loss_coeff
    if not isinstance(weights, list):
        weights = [weights] * len(kinds)
    return {
        kind for kind, weight in zip(kinds, weights, strict=False) if weight or kind == "sinkhorn"
    }
