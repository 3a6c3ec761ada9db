"""Which rows an expert gets, from which ranks, and which part of a gradient is whose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ttrace.adapters.megatron.distributed_optimizer import own_ranges
from ttrace.adapters.megatron.experts import ExpertRules, scores, sources
from ttrace.adapters.megatron.names import Numbering
from ttrace.adapters.megatron.topology import Topology, _among_experts
from ttrace.capture.placed import Batch, Moment


def topology(place: int = 0, sp: bool = False, **size: int) -> Topology:
    """Of the stage's rank of this number."""
    size = {"pp": 1, "dp": 1, "cp": 1, "tp": 1, "ep": 1, "etp": 1} | size
    size["edp"] = size["dp"] * size["cp"] * size["tp"] // (size["ep"] * size["etp"])
    here = Topology(size, {}, sp)
    coordinate = {"pp": 0, **here.coordinate_in_stage(place)}
    return Topology(size, coordinate | _among_experts(size, coordinate), sp)


def test_both_grids_number_all_ranks() -> None:
    size = {"dp": 2, "cp": 1, "tp": 4, "ep": 4, "etp": 1}
    places = [topology(place, **size) for place in range(8)]
    for dims in (("dp", "cp", "tp"), ("edp", "ep", "etp")):
        assert [at.place_in(*dims) for at in places] == [(8, place) for place in range(8)]
    assert places[5].coordinate == {
        "pp": 0, "dp": 1, "cp": 0, "tp": 1, "edp": 1, "ep": 1, "etp": 0,
    }  # fmt: skip
    ((mesh, coordinate),) = places[5].views()
    assert mesh == [("pp", 1), ("edp", 2), ("ep", 4), ("etp", 1)]
    assert coordinate == [0, 1, 1, 0]
    assert places[5].first_expert(SimpleNamespace(num_moe_experts=8)) == 2


def test_experts_are_numbered_over_all_ranks() -> None:
    name = Numbering(4, 2).module("decoder.layers.1.mlp.experts.local_experts.1.linear_fc1")
    assert name == "decoder.layers.5.mlp.experts.local_experts.3.linear_fc1"


@pytest.mark.parametrize(
    ("dispatcher", "order"), [("alltoall", [4, 6, 5, 7]), ("allgather", [4, 5, 6, 7])]
)
def test_rows_come_in_the_order_of_the_dispatcher(dispatcher: str, order: list[int]) -> None:
    at = topology(6, dp=4, tp=2, ep=2, etp=2, sp=True)
    assert sources(at, SimpleNamespace(moe_token_dispatcher_type=dispatcher)) == order


def test_rows_are_the_tokens_of_all_sources_in_their_own_order() -> None:
    """Two ranks of dp and two of tp: ep is all four."""
    config = SimpleNamespace(moe_token_dispatcher_type="alltoall", gated_linear_unit=False)
    at = topology(3, sp=True, dp=2, tp=2, ep=4)
    rules = ExpertRules(at, config)
    batch = Batch(global_rows=4, micro_batch_size=1, micro_batches=2, grad_scale=(1, 1))
    rules.batch, rules.sequence = batch, 4
    rule = rules.module("MLP", "decoder.layers.0.mlp.experts.local_experts.3")
    assert rule is not None
    choice = rule.inputs["hidden_states"]
    assert callable(choice)
    routed = choice(torch.zeros(3, 8)).routed
    assert routed.rows.by == "decoder.layers.0.mlp.router"
    assert routed.rows[1:] == ("1", 3, "experts", 16)
    chosen = torch.zeros(4, 4, dtype=torch.bool)  # [sequence, rows]
    for position, row in ((0, 2), (3, 2), (2, 3), (1, 1)):
        chosen[position, row] = True
    # This rank's second micro-batch: rows 2 and 3 are of dp 0 and 1. Rank 0 has positions 0 and 1
    # of row 2, rank 1 the other two, rank 3 position 2 of row 3.
    moment = Moment(0, "real", 3, batch)
    assert routed.tokens(chosen, moment).tolist() == [2 * 4 + 0, 2 * 4 + 3, 3 * 4 + 2]


def test_context_parallel_ranks_hold_two_chunks() -> None:
    config = SimpleNamespace(moe_token_dispatcher_type="alltoall", gated_linear_unit=False)
    rules = ExpertRules(topology(1, cp=2, ep=2), config)
    batch = Batch(global_rows=1, micro_batch_size=1, micro_batches=1, grad_scale=(1, 1))
    tokens = rules._tokens(torch.ones(8, 1, dtype=torch.bool), Moment(0, "real", 0, batch))
    assert tokens.tolist() == [0, 1, 6, 7, 2, 3, 4, 5]


def test_padded_rows_have_no_place() -> None:
    config = SimpleNamespace(moe_pad_expert_input_to_capacity=True, gated_linear_unit=False)
    assert ExpertRules(topology(), config).module("MLP", "mlp.experts.local_experts.0") is None


def test_scores_are_what_the_largest_are_chosen_of() -> None:
    logits = torch.tensor([[[0.0, 2.0]]])
    plain = SimpleNamespace(config=SimpleNamespace(), score_function="softmax")
    assert torch.equal(scores(plain, logits), logits[0])
    bias = torch.tensor([1.0, 0.0])
    biased = SimpleNamespace(config=SimpleNamespace(), score_function="sigmoid", expert_bias=bias)
    assert torch.equal(scores(biased, logits), torch.sigmoid(logits[0]) + bias)
    groups = SimpleNamespace(config=SimpleNamespace(moe_router_num_groups=2))
    assert scores(groups, logits) is None


def test_a_rank_owns_the_elements_of_its_part_of_each_bucket() -> None:
    buffer = torch.zeros(16)
    first, second = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(5))
    first.main_grad, second.main_grad = buffer[0:6].view(2, 3), buffer[8:13]
    bucket = SimpleNamespace(grad_data=buffer, params_list=[first, second])
    wrapped = SimpleNamespace(bucket_groups=[SimpleNamespace(buckets=[bucket])])

    def ranges(rank: int, ranks: int) -> list[object]:
        model = SimpleNamespace(wrapped=[wrapped], topology=topology(rank, dp=ranks))
        found = own_ranges(model)
        return [found.get(id(first)), found.get(id(second))]

    assert [ranges(rank, 2) for rank in range(2)] == [[(0, 6), None], [None, (0, 5)]]
    assert [ranges(rank, 4) for rank in range(4)] == [
        [(0, 4), None], [(4, 6), None], [None, (0, 4)], [None, (4, 5)],
    ]  # fmt: skip
