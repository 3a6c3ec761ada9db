"""What a loop's own collectives show of its ranks, and a hook that comes before others."""

import pytest
import torch

from ttrace.adapters.torch.first_hooks import register_first
from ttrace.adapters.torch.iteration import LoopIteration
from ttrace.adapters.torch.own_reduction import OwnReduction
from ttrace.adapters.torch.reduction_by_hand import ReductionByHand
from ttrace.adapters.torch.refusals import Unsupported
from ttrace.capture.collective_calls import Call
from ttrace.capture.parameter_store import Piece

SIZES = {"a": 60, "b": 30, "c": 10}


def call(elements=1, kind="all_reduce", members=(0, 1), shape=None, dtype=torch.float32):
    tensor = torch.zeros(shape or (elements,), dtype=dtype)
    return Call(kind, "sum", tuple(members), (tensor,))


def heard(*reductions, ranks=2):
    """What is said of ranks that make these: (call, names) each."""
    own = OwnReduction()
    for of, names in reductions:
        own.heard(of, names, is_model=False)
    own.confirm(range(ranks), SIZES)
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
    own = OwnReduction()
    assert not own.heard(call(100), (), is_model=True)
    assert not own.heard(call(100, dtype=torch.int64), (), is_model=False)
    assert not own.counts_copies
    with pytest.raises(Unsupported):
        own.confirm(range(2), SIZES)


def test_other_groups_are_named():
    reason = refused((call(100, members=(0, 1)), ()), ranks=4)
    assert "over ranks 0, 1 alone (100 of their 100 elements)" in reason
    twice = ((call(100, members=(0,)), ()) for _ in range(2))
    assert "over rank 0 alone (100 of their 100 elements)" in refused(*twice)


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
    OwnReduction().confirm(range(2), {})


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


def test_what_no_backward_reached_adds_nothing_if_it_was_empty():
    own = OwnReduction()
    own.unreached.update({"a": False, "b": True, "c": False})
    assert own.adds_nothing_to(["a", "b", "c", "d"], reached={"c"}) == ["a"]


class Parameters:
    """A store of one parameter, with a gradient."""

    def __init__(self):
        self.weight = torch.zeros(100)
        self.idle = None  # the gradient of another, that no backward has reached

    def parameters_used(self):
        return [Piece("a", self.weight)]

    def sizes_of(self, names):
        return {name: 100 for name in names}

    def gradients_not_reached(self):
        return [("b", self.idle)]


class Loop:
    """A session in an iteration."""

    def __init__(self):
        self.now = LoopIteration(0, "real")


def by_hand(arrived=("a",)):
    loop, store = Loop(), Parameters()
    for fqn in arrived:
        loop.now.gradients.arrives(fqn)
        loop.now.own_reduction.arrived(fqn, 0)
    return ReductionByHand(loop, store), store, loop.now.own_reduction


def test_a_flat_copy_is_a_reduction_once_there_are_gradients():
    following, _, own = by_hand()
    assert following.heard(call(100), (), "") == ()
    own.confirm(range(2), {"a": 100})
    assert by_hand(arrived=())[0].heard(call(100), (), "") is None
    assert by_hand()[0].heard(call(100), (), "MulBackward0") is None


def test_weights_that_are_averaged_are_no_gradients():
    following, store, _ = by_hand()
    weights = Call("all_reduce", "sum", (0, 1), (store.weight.view(10, 10),))
    assert following.heard(weights, (), "") is None


def test_what_a_hook_sends_within_a_backward_is_of_its_parameter():
    following, _, own = by_hand()
    x = torch.ones(2, requires_grad=True)
    told = []

    def hook(gradient):
        told.append(following.heard(call(100), (), ""))
        told.append(following.heard(call(99), (), ""))

    x.register_hook(hook)
    x.sum().backward()
    assert told == [("a",), ()]
    assert not own.unreached  # others may be reached yet
    assert following.heard(call(100), (), "") == ()


def test_what_no_backward_reached_is_looked_at_when_it_is_reduced_first():
    for gradient, full in ((None, False), (torch.zeros(2), False), (torch.ones(2), True)):
        following, store, own = by_hand()
        store.idle = gradient
        following.heard(call(5, dtype=torch.int64), (), "")
        assert own.unreached == {}
        following.heard(call(100), (), "")
        assert own.unreached == {"b": full}
        store.idle = torch.ones(2)  # what it was reduced to
        following.heard(call(100), (), "")
        assert own.unreached == {"b": full}
