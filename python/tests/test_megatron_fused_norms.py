"""Norms that are part of the linear behind them: whose names they get."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.fused_norms import FusedNorms
from ttrace.adapters.megatron.rules import ModuleRules
from ttrace.adapters.megatron.topology import Topology


class IdentityOp(nn.Module):
    pass


class TELayerNormColumnParallelLinear(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.layer_norm_weight = nn.Parameter(torch.ones(4))
        self.layer_norm_bias = nn.Parameter(torch.zeros(4)) if bias else None
        self.weight = nn.Parameter(torch.zeros(6, 4))
        self.weight.tensor_model_parallel, self.weight.partition_dim = True, 0
        self.bias = nn.Parameter(torch.zeros(6))


class SelfAttention(nn.Module):
    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear_qkv = linear


class TransformerLayer(nn.Module):
    def __init__(self, norm: nn.Module, linear: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = norm
        self.self_attention = SelfAttention(linear)


def seen(layer: TransformerLayer) -> FusedNorms:
    norms = FusedNorms()
    norms.see_layer(layer, "layers.3")
    return norms


LINEAR = "layers.3.self_attention.linear_qkv"


def test_parameters_have_the_names_of_a_norm_of_its_own() -> None:
    norms = seen(TransformerLayer(IdentityOp(), TELayerNormColumnParallelLinear()))
    assert norms.parameter(LINEAR, "layer_norm_weight") == "layers.3.input_layernorm.weight"
    assert norms.parameter(LINEAR, "layer_norm_bias") == "layers.3.input_layernorm.bias"
    assert norms.parameter(LINEAR, "weight") is None
    assert norms.parameter("layers.3.mlp.linear_fc1", "layer_norm_weight") is None
    assert norms.feeds("layers.3.self_attention")
    assert not norms.feeds("layers.3.mlp")


def test_the_names_that_they_have_here_are_told() -> None:
    norms = seen(TransformerLayer(IdentityOp(), TELayerNormColumnParallelLinear(bias=False)))
    norm = norms.within(LINEAR)
    assert norm is not None
    assert dict(norm.real_names()) == {
        "layers.3.input_layernorm": LINEAR,
        "layers.3.input_layernorm.weight": f"{LINEAR}.layer_norm_weight",
    }


@pytest.mark.parametrize(
    "layer",
    [
        TransformerLayer(nn.LayerNorm(4), TELayerNormColumnParallelLinear()),
        TransformerLayer(nn.LayerNorm(4), nn.Linear(4, 6)),
        TransformerLayer(IdentityOp(), nn.Linear(4, 6)),
    ],
    ids=["normalised twice", "a norm of its own", "no norm"],
)
def test_otherwise_names_stay_as_they_are(layer: TransformerLayer) -> None:
    norms = seen(layer)
    assert norms.within(LINEAR) is None
    assert norms.parameter(LINEAR, "layer_norm_weight") is None
    assert not norms.feeds("layers.3.self_attention")


def test_what_torch_compile_wraps_is_looked_into() -> None:
    wrapped = nn.Module()
    wrapped._orig_mod = SelfAttention(TELayerNormColumnParallelLinear())
    layer = TransformerLayer(IdentityOp(), nn.Linear(4, 6))
    layer.self_attention = wrapped
    assert seen(layer).within(LINEAR) is not None


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_the_norms_parameters_are_whole_and_their_gradients_terms_of_a_sum(
    sequence_parallel: bool,
) -> None:
    size = {"pp": 1, "dp": 1, "cp": 1, "tp": 2}
    topology = Topology(size, dict.fromkeys(size, 0), sequence_parallel)
    config = SimpleNamespace(calculate_per_token_loss=False, gated_linear_unit=False)
    root = nn.Module()
    linear = TELayerNormColumnParallelLinear()
    rules = ModuleRules(topology, config, root)
    layer = TransformerLayer(IdentityOp(), linear)
    for name, module in (
        ("layers.3", layer),
        ("layers.3.self_attention", layer.self_attention),
        (LINEAR, linear),
    ):
        rules.kind(module, name)
    for slot in ("layer_norm_weight", "layer_norm_bias"):
        rule = rules.parameter(linear, LINEAR, slot)
        assert rule is not None
        assert "tp" not in rule.placements.replace("tp:Replicate", "")
        assert ("tp:Partial" in rule.local_placements) is sequence_parallel
        assert ("tp" in rule.reduced_over) is sequence_parallel
    weight = rules.parameter(linear, LINEAR, "weight")
    assert weight is not None and "tp:Shard(0)" in weight.placements
    module = rules.module(linear, LINEAR)
    assert module is not None
    given = module.inputs["input_"]
    assert given.names(LINEAR, "input_") == ("layers.3.input_layernorm", "input")
    assert ("tp:Shard(0)" in given.placements) is sequence_parallel
    attention = rules.module(layer.self_attention, "layers.3.self_attention")
    assert attention is not None and not attention.inputs
