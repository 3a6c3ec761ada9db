"""Modules that no rule knows by their class, and where their parameters lie."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.declared import declared
from ttrace.adapters.megatron.names import Numbering, is_compiled, unwrap, wrappers
from ttrace.adapters.megatron.structure import COLUMN, NORM, ROW, Structure
from ttrace.adapters.megatron.topology import Topology


def topology(tp: int, sequence_parallel: bool = False) -> Topology:
    size = {"pp": 1, "dp": 1, "cp": 1, "tp": tp}
    return Topology(size, dict.fromkeys(size, 0), sequence_parallel)


def parameter(*shape: int, **attributes: object) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(shape))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def cut(dim: int, stride: int = 1) -> dict[str, object]:
    return {"tensor_model_parallel": True, "partition_dim": dim, "partition_stride": stride}


def test_a_parameter_that_says_nothing_is_whole() -> None:
    found = declared(parameter(4, 4), topology(2), None)
    assert (found.words, found.summed, found.refusal) == ({}, ("dp", "cp"), None)


def test_a_cut_parameter_says_where() -> None:
    assert declared(parameter(4, 4, **cut(1)), topology(2), None).words == {"tp": "Shard(1)"}
    strided = declared(parameter(4, 4, **cut(0, 2)), topology(2), None)
    assert strided.words == {"tp": "StridedShard(0,2)"}


def test_without_tensor_parallelism_nothing_is_cut() -> None:
    assert declared(parameter(4, 4, **cut(1)), topology(1), None).words == {}


def test_the_reference_tells_of_a_cut_that_no_attribute_names() -> None:
    assert declared(parameter(4, 6), topology(2), [8, 6]).words == {"tp": "Shard(0)"}
    assert declared(parameter(4, 6), topology(2), [4, 6]).words == {}


@pytest.mark.parametrize(
    ("local", "reference"),
    [
        (parameter(4, 4), [4, 5]),
        (parameter(4, 4), [8, 8]),
        (parameter(4, 4, **cut(0)), [4, 4]),
        (parameter(4, 4, **cut(0)), [4, 8]),
        (parameter(4, 4, allreduce=False), None),
    ],
    ids=["other shape", "two dimensions", "cut but whole", "cut elsewhere", "an expert's"],
)
def test_what_is_ambiguous_is_refused(local: nn.Parameter, reference: list[int] | None) -> None:
    assert declared(local, topology(2), reference).refusal


def test_gradients_are_summed_over_parts_of_the_sequence_where_megatron_does_it() -> None:
    marked = parameter(4, sequence_parallel=True)
    assert "tp" in declared(marked, topology(2, True), None).summed
    assert "tp" not in declared(marked, topology(2, False), None).summed
    assert "tp" not in declared(parameter(4), topology(2, True), None).summed


# What a module is. Classes are known by their names.


class ColumnParallelLinear(nn.Module):
    def __init__(self, *shape: int, **attributes: object) -> None:
        super().__init__()
        self.weight = parameter(*shape, **attributes)


class RenamedLinear(ColumnParallelLinear):
    pass


class OwnLinear(nn.Module):
    def __init__(self, *shape: int, **attributes: object) -> None:
        super().__init__()
        self.weight = parameter(*shape, **attributes)


class OwnNorm(OwnLinear):
    pass


class SelfAttention(nn.Module):
    pass


class TransformerLayer(nn.Module):
    pass


class SharedExpertMLP(nn.Module):
    pass


def kinds(tp: int, **children: nn.Module) -> dict[str, str | None]:
    """Of the children of an attention in a layer, by their names."""
    layer = TransformerLayer()
    layer.self_attention = SelfAttention()
    for name, child in children.items():
        where = layer if name.endswith("layernorm") else layer.self_attention
        where.add_module(name, child)
    structure = Structure(layer, tp)
    return {name.rpartition(".")[2]: structure.kind(m, name) for name, m in layer.named_modules()}


def test_a_subclass_is_what_its_base_is() -> None:
    assert kinds(2, anywhere=RenamedLinear(4, 4))["anywhere"] == COLUMN


def test_a_class_from_scratch_is_what_its_place_says() -> None:
    found = kinds(
        2,
        linear_qkv=OwnLinear(4, 4, **cut(0)),
        linear_proj=OwnLinear(4, 4, **cut(1)),
        input_layernorm=OwnNorm(4),
    )
    assert (found["linear_qkv"], found["linear_proj"]) == (COLUMN, ROW)
    assert found["input_layernorm"] == NORM


def test_a_place_is_not_believed_against_the_parameters() -> None:
    found = kinds(
        2,
        linear_qkv=OwnLinear(4, 4),  # not cut
        linear_proj=OwnLinear(4, 4, **cut(0)),
        input_layernorm=OwnNorm(4, 4),  # no norm has a matrix
    )
    assert [found[name] for name in ("linear_qkv", "linear_proj", "input_layernorm")] == [None] * 3
    assert kinds(1, linear_qkv=OwnLinear(4, 4))["linear_qkv"] == COLUMN


def test_a_place_in_an_unknown_module_says_nothing() -> None:
    root = nn.Module()
    root.block = nn.Module()
    root.block.linear_qkv = OwnLinear(4, 4, **cut(0))
    structure = Structure(root, 2)
    assert [structure.kind(m, name) for name, m in root.named_modules()] == [None] * 3


def test_a_norm_somewhere_else_is_unknown_where_it_matters() -> None:
    assert kinds(1, own=nn.LayerNorm(4))["own"] == NORM
    assert kinds(2, own=nn.LayerNorm(4))["own"] is None


def test_a_derived_class_that_is_used_otherwise_is_unknown() -> None:
    assert kinds(1, mlp=SharedExpertMLP())["mlp"] is None


def test_a_compiled_module_keeps_its_name() -> None:
    linear = nn.Linear(2, 2)
    compiled = torch.compile(linear, backend="eager")
    assert is_compiled(compiled)
    assert not is_compiled(linear)
    assert unwrap(compiled) is linear
    assert wrappers(compiled) == [compiled, linear]
    assert Numbering(2).module("decoder.layers.1._orig_mod.mlp") == "decoder.layers.3.mlp"
