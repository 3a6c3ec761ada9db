"""Where what a module makes lies over the ranks, by class and by place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ttrace.adapters.megatron.model import Chunk
from ttrace.adapters.megatron.names import Numbering, embeds_again, is_unused
from ttrace.adapters.megatron.rules import ModuleRules
from ttrace.adapters.megatron.topology import Topology
from ttrace.capture.placed import TensorRule


class LayerNorm(nn.LayerNorm):
    pass


class Linear(nn.Module):
    """Whole, unless `partition_dim` says where tensor parallelism cuts it."""

    def __init__(self, partition_dim: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4))
        if partition_dim is not None:
            self.weight.tensor_model_parallel = True
            self.weight.partition_dim = partition_dim


class VocabParallelEmbedding(nn.Embedding):
    pass


class LanguageModelEmbedding(nn.Module):
    add_position_embedding = False

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = VocabParallelEmbedding(4, 4)


class MultiTokenPredictionLayer(nn.Module):
    pass


class SelfAttention(nn.Module):
    pass


class MLASelfAttention(nn.Module):
    pass


class GPTModel(nn.Module):
    def __init__(self, tied: bool, mtp: int | None, first: bool, last: bool) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            gated_linear_unit=False, calculate_per_token_loss=False, mtp_num_layers=mtp
        )
        self.share_embeddings_and_output_weights = tied
        self.pre_process, self.post_process = first, last
        self.mtp_process = last and mtp is not None
        if first or self.mtp_process:
            self.embedding = LanguageModelEmbedding()
        if last:
            self.output_layer = Linear(0)


def topology(tp: int = 1, pp: int = 1, sequence_parallel: bool = False) -> Topology:
    size = {"pp": pp, "dp": 1, "cp": 1, "tp": tp}
    return Topology(size, dict.fromkeys(size, 0), sequence_parallel)


def rules_of(root: nn.Module, where: Topology) -> ModuleRules:
    rules = ModuleRules(where, root.config, root)
    for name, module in root.named_modules():
        rules.kind(module, name)
    return rules


def attention(kind: type[nn.Module], sequence_parallel: bool, **children: nn.Module) -> ModuleRules:
    root = GPTModel(True, None, True, True)
    root.attention = kind()
    for name, child in children.items():
        root.attention.add_module(name, child)
    return rules_of(root, topology(2, 1, sequence_parallel))


def placements(rules: ModuleRules, name: str) -> tuple[str, str]:
    """Of a module's input and output."""
    module = rules._root.get_submodule(name)
    rule = rules.module(module, name)
    assert rule is not None
    (given,) = rule.inputs.values()
    made = rule.outputs["0"]
    if not isinstance(made, TensorRule):
        made = made(torch.zeros(1, 1, 1))
    return given.placements, made.placements


def local_gradient(rules: ModuleRules, name: str) -> str:
    owner, _, slot = name.rpartition(".")
    rule = rules.parameter(rules._root.get_submodule(owner), owner, slot)
    assert rule is not None
    return rule.local_placements


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_norm_of_what_attention_compresses_is_none_of_heads(sequence_parallel: bool) -> None:
    norms = {"q_layernorm": LayerNorm(4), "kv_layernorm": LayerNorm(4)}
    rules = attention(MLASelfAttention, sequence_parallel, **norms)
    stream = "tp:Shard(0)" if sequence_parallel else ""
    for name in norms:
        assert placements(rules, f"attention.{name}") == (stream, stream)
        summed = "tp:Partial(sum)" if sequence_parallel else ""
        assert local_gradient(rules, f"attention.{name}.weight") == summed


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_norm_of_heads_sees_the_ranks_own_heads(sequence_parallel: bool) -> None:
    rules = attention(SelfAttention, sequence_parallel, q_layernorm=LayerNorm(4))
    assert placements(rules, "attention.q_layernorm") == ("tp:Shard(2)", "tp:Shard(2)")
    assert local_gradient(rules, "attention.q_layernorm.weight") == "tp:Partial(sum)"


def test_what_projects_down_may_be_cut_or_whole() -> None:
    cut = attention(MLASelfAttention, True, linear_kv_down_proj=Linear(0))
    assert placements(cut, "attention.linear_kv_down_proj") == ("tp:Shard(0)", "tp:Shard(2)")
    assert local_gradient(cut, "attention.linear_kv_down_proj.weight") == "tp:Shard(0)"
    whole = attention(MLASelfAttention, True, linear_kv_down_proj=Linear())
    assert placements(whole, "attention.linear_kv_down_proj") == ("tp:Shard(0)", "tp:Shard(0)")
    assert local_gradient(whole, "attention.linear_kv_down_proj.weight") == "tp:Partial(sum)"
    alone = attention(MLASelfAttention, False, linear_kv_down_proj=Linear())
    assert placements(alone, "attention.linear_kv_down_proj") == ("", "")
    assert local_gradient(alone, "attention.linear_kv_down_proj.weight") == ""


def test_what_projects_up_is_cut() -> None:
    rules = attention(MLASelfAttention, True, linear_q_up_proj=Linear(0))
    assert placements(rules, "attention.linear_q_up_proj") == ("tp:Shard(0)", "tp:Shard(2)")
    rules = attention(MLASelfAttention, True, linear_q_up_proj=Linear())
    assert (
        rules.module(rules._root.attention.linear_q_up_proj, "attention.linear_q_up_proj") is None
    )


@pytest.mark.parametrize(
    ("tied", "mtp", "embedding", "head"),
    [
        (False, None, "", ""),
        (True, None, "pp:Partial(sum)", "pp:Partial(sum)"),
        (False, 1, "pp:Partial(sum)", ""),
        (True, 1, "pp:Partial(sum)", None),
    ],
)
def test_gradients_of_copies_of_the_embedding_are_a_sum_over_stages(
    tied: bool, mtp: int | None, embedding: str, head: str | None
) -> None:
    first = rules_of(GPTModel(tied, mtp, True, False), topology(pp=2))
    assert local_gradient(first, "embedding.word_embeddings.weight") == embedding
    root = GPTModel(tied, mtp, False, True)
    last = rules_of(root, topology(pp=2))
    if mtp:
        assert local_gradient(last, "embedding.word_embeddings.weight") == embedding
    # The head's weight is there and not used where the stage has the tied one as an embedding.
    assert is_unused("output_layer.weight", root) == (head is None)
    if head is not None:
        assert local_gradient(last, "output_layer.weight") == head
    own = "embedding.word_embeddings.weight" if tied else "output_layer.weight"
    assert Numbering().parameter("output_layer.weight", root) == own


def test_only_a_later_stage_embeds_again() -> None:
    assert embeds_again(GPTModel(True, 1, False, True))
    assert not embeds_again(GPTModel(True, 1, True, True))
    assert not embeds_again(GPTModel(True, 1, True, False))
    assert not embeds_again(GPTModel(True, None, False, True))


def test_a_layer_for_further_tokens_lies_as_others_and_its_projection_is_cut() -> None:
    root = GPTModel(True, 1, False, True)
    root.mtp = MultiTokenPredictionLayer()
    root.mtp.eh_proj, root.mtp.hnorm = Linear(0), LayerNorm(4)
    rules = rules_of(root, topology(2, 2, True))
    layer = rules.module(root.mtp, "mtp")
    assert layer is not None
    stream = "tp:Shard(0)"
    assert layer.inputs["hidden_states"].placements == layer.outputs["0"].placements == stream
    # The tokens are shifted by one and handed on.
    tokens = [layer.inputs["input_ids"], layer.outputs["1"]]
    assert [(rule.placements, rule.batch_dim) for rule in tokens] == [("", 0), ("", 0)]
    assert placements(rules, "mtp.eh_proj") == (stream, "tp:Shard(2)")
    assert placements(rules, "mtp.hnorm") == (stream, stream)


def test_where_tokens_are_embedded_again_their_own_call_is_counted() -> None:
    def earlier(mtp: int | None, first: bool) -> dict[tuple[str, str], int]:
        return Chunk(GPTModel(True, mtp, first, True), 0, topology(pp=2), None).earlier_calls()

    embeds = ("embedding", "embedding.word_embeddings")
    assert earlier(1, False) == {(name, "forward"): 1 for name in embeds}
    assert earlier(1, True) == earlier(None, False) == {}
