"""What is known of Megatron's linears before they are called, and what only then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.rules import ModuleRules
from ttrace.adapters.megatron.topology import Topology


class ColumnParallelLinear(nn.Module):
    """By its name one of Megatron's."""

    output_size_per_partition = 8

    def __init__(self, gather_output: bool) -> None:
        super().__init__()
        self.gather_output = gather_output


@pytest.mark.parametrize("gather_output", [False, True])
def test_a_call_decides_whether_an_output_is_gathered(gather_output: bool) -> None:
    size = {"pp": 1, "dp": 1, "cp": 1, "tp": 2}
    topology = Topology(size, dict.fromkeys(size, 0), False)
    linear = ColumnParallelLinear(gather_output)
    config = SimpleNamespace(gated_linear_unit=False)
    rules = ModuleRules(topology, config, nn.ModuleDict({"linear": linear}))
    rule = rules.module(linear, "linear")
    assert rule is not None
    choose = rule.outputs["0"]
    assert callable(choose)
    assert "tp:Shard(2)" in choose(torch.zeros(4, 1, 8)).placements
    assert "Shard(2)" not in choose(torch.zeros(4, 1, 16)).placements
