"""What a loop's own collectives show of its ranks, and a hook that comes before others."""

import pytest
import torch

from ttrace.adapters.torch.first_hooks import register_first
from ttrace.adapters.torch.own_reduction import OwnReduction
from ttrace.adapters.torch.topology import Unsupported
from ttrace.capture.collective_calls import Call

SIZES = {"a": 60, "b": 30, "c": 10}


def call(elements=1, kind="all_reduce", members=(0, 1), shape=None, dtype=torch.float32):
    tensor = torch.zeros(shape or (elements,), dtype=dtype)
    return Call(kind, "sum", tuple(members), (tensor,))


def heard(*reductions, ranks=2):
    """What is said of ranks that make these: (call, names) each."""
    own = OwnReduction()
    for of, names in reductions:
        own.heard(of, names, is_model=False)
    own.confirm(ranks, SIZES)
    return own


def refused(*reductions, ranks=2):
    with pytest.raises(Unsupported) as refusal:
        heard(*reductions, ranks=ranks)
    assert refusal.value.what == f"{ranks} ranks without DistributedDataParallel"
    assert "DistributedDataParallel" in refusal.value.way_out
    return refusal.value.reason


def test_gradients_that_go_through_collectives_over_all_ranks_show_data_parallel_ones():
    heard(*((call(SIZES[name]), (name,)) for name in SIZES))
    heard((call(100), ()))  # a flat copy
    heard((call(60), ("a",)), (call(40), ()))
    heard((call(60, "reduce_scatter"), ()))
    heard((call(60, "all_gather"), ("a",)))


def test_one_that_no_collective_covers_is_for_the_check_to_find():
    heard((call(60), ("a",)))


def test_most_have_to_be_covered():
    assert "30 of their 100 elements" in refused((call(30), ("b",)))
    assert "no collective reduced the 3 gradients" in refused()
    # Counted once, however often it was reduced.
    refused(*((call(30), ("b",)) for _ in range(4)))


def test_what_is_no_reduction_shows_nothing():
    refused((call(100, "all_gather"), ()))  # predictions, say
    refused((call(100, "broadcast"), ()))
    refused((call(100, dtype=torch.int64), ()))
    refused((call(100, members=(0,)), ()))
    own = OwnReduction()
    assert not own.heard(call(100), (), is_model=True)
    with pytest.raises(Unsupported):
        own.confirm(2, SIZES)


def test_other_groups_are_named():
    reason = refused((call(100, members=(0, 1)), ()), ranks=4)
    assert "over ranks 0, 1 alone" in reason


def test_stages_that_reach_all_ranks_are_a_reduction_over_them():
    heard((call(100, members=(0, 1)), ()), (call(100, members=(0, 2)), ()), ranks=4)
    within = call(100, "reduce_scatter", (0, 1))
    heard((within, ()), (call(50, members=(0, 2)), ()), ranks=4)
    refused((within, ()), (call(20, members=(0, 2)), ()), ranks=4)
    refused((call(100, members=(0, 1)), ()), (call(100, members=(0, 2)), ()), ranks=8)


def test_tensors_that_are_passed_on_are_no_data_parallelism():
    passed = call(kind="send", shape=(4, 4))
    assert "send" in refused((call(100), ()), (passed, ()))
    heard((call(100), ()), (call(kind="send", shape=(4,)), ()))  # a count


def test_nothing_is_said_of_an_iteration_without_gradients():
    OwnReduction().confirm(2, {})


def test_what_is_added_after_a_reduction_is_late_until_the_next():
    own = OwnReduction()
    own.arrived("a", 0)
    own.heard(call(60), ("a",), is_model=False)
    assert own.early() == {}
    own.arrived("a", 2)
    own.arrived("b", 2)
    assert own.early() == {(2,): ["a"]}
    own.heard(call(60), ("a",), is_model=False)
    assert own.early() == {}


def test_digits_that_are_not_sent_are_known():
    own = heard((call(60, dtype=torch.bfloat16), ()), (call(40), ("b",)))
    assert own.sends_less_than([torch.float32]) is torch.bfloat16
    assert own.sends_less_than([torch.bfloat16]) is None
    assert own.sends_less_than([]) is None
    assert OwnReduction().sends_less_than([torch.float32]) is None
    assert own.times(SIZES) == 1
    assert heard(*((call(100), ()) for _ in range(3))).times(SIZES) == 3
    assert heard(*((call(60), ("a",)) for _ in range(2))).times(SIZES) == 2


def test_a_first_hook_comes_before_those_that_were_there_and_those_that_follow():
    seen = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: seen.append("old") or g * 3)
    first = register_first(x, lambda g: seen.append(("first", g.tolist())) or g * 2)
    x.register_hook(lambda g: seen.append("new"))
    x.sum().backward()
    assert seen == [("first", [1.0, 1.0]), "old", "new"]
    assert x.grad.tolist() == [6.0, 6.0]
    first.remove()
    seen.clear()
    x.sum().backward()
    assert seen == ["old", "new"]
