"""What a router makes of all tokens that it sees at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ttrace.adapters.megatron.router_functions import note_router_function

OFF = {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.0}


@pytest.mark.parametrize(
    ("config", "noted"),
    [
        ({}, {}),
        ({"moe_aux_loss_coeff": 0.1}, {"auxiliary loss": 4 * 3 * 2}),
        ({"moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 0.1}, {}),
        (
            {
                "moe_router_load_balancing_type": ["aux_loss", "global_aux_loss"],
                "moe_aux_loss_coeff": [0.0, 0.1],
            },
            {"global auxiliary loss": 4 * 3 * 2 * 5},
        ),
        ({"moe_router_load_balancing_type": "sinkhorn"}, {"balances": 4}),
        ({"moe_expert_capacity_factor": 1.0}, {"capacity": 4}),
    ],
)
def test_of_how_many_tokens_it_is_a_function(config: dict, noted: dict) -> None:
    notes = {}
    session = SimpleNamespace(note=lambda kind, name, value, option: notes.update({name: value}))
    topology = SimpleNamespace(size={"tp": 3, "cp": 2, "dp": 5}, sequence_parallel=True)
    model = SimpleNamespace(session=session, topology=topology, router_functions=set())
    router = SimpleNamespace(config=SimpleNamespace(**{**OFF, **config}))
    for _ in range(2):
        note_router_function(model, router, torch.zeros(2, 2, 8))
    assert len(notes) == len(noted)
    for (name, value), (word, expected) in zip(notes.items(), noted.items(), strict=True):
        assert word in name
        assert value == expected
