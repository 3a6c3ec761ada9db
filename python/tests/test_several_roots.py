"""Several models of one loop: whose calls are counted how, and what one makes for another."""

from __future__ import annotations

import torch

from ttrace.adapters.torch.calls_of_root import CallsOfRoot
from ttrace.adapters.torch.fed_rows import Fed
from ttrace.adapters.torch.made_by_roots import MadeByRoots
from ttrace.adapters.torch.repeat.followed_memory import FollowedMemory


def test_a_model_has_micro_batches_of_its_own_in_each_part():
    critic = CallsOfRoot()
    # Two halves, one backward; another micro-batch of the same.
    assert critic.begin(0, 0) == (0, 1, 0)
    critic.calls["critic", "forward"] = 1
    assert critic.begin(0, 0) == (0, 1, 1)
    critic.calls["critic", "forward"] = 2
    assert critic.begin(0, 1) == (0, 2, 0)
    assert critic.calls == {}
    critic.calls["critic", "forward"] = 1
    assert critic.begin(0, 1) == (0, 2, 1)
    critic.calls["critic", "forward"] = 2
    # Behind the step calls go on, and micro-batches begin again.
    assert critic.begin(1, 1) == (1, 1, 2)
    assert critic.calls == {("critic", "forward"): 2}
    assert [critic.count(part) for part in (0, 1, 2)] == [2, 1, 0]
    # A part in which it is not called is none of its own.
    generator = CallsOfRoot()
    assert generator.begin(1, 7) == (0, 1, 0)


def test_what_a_model_has_made_is_no_data_and_has_the_rows_that_it_was_given():
    made, rows = MadeByRoots(), [Fed("noise", 0, 4, 8, False, ("a" * 64, "", "", "", ""))]
    made.forward(rows)
    output = torch.ones(4, 3)
    made.made([output], in_forward=True)
    picture = output.detach()
    assert made.has(picture) and not made.has(torch.ones(4, 3))
    assert [one.arg for one in made.rows_of({"picture": picture})] == ["picture"]
    assert made.rows_of({"picture": torch.ones(4, 3)}) == []
    # Of a call that was no forward of the iteration nothing is known but that it was made.
    other = torch.ones(4, 3)
    made.made([other], in_forward=False)
    assert made.has(other) and made.rows_of({"picture": other}) == []
    computed = torch.ones(4, 3, requires_grad=True) * 2
    assert made.has(computed)


def test_memory_that_was_freed_is_followed_no_more():
    memory = bytearray(256)  # which the next tensor gets
    followed, tensor = FollowedMemory(), torch.frombuffer(memory, dtype=torch.float32)
    followed.add(tensor, 3)
    assert followed.slot(tensor) == followed.slot(tensor[2:].detach()) == 3
    del tensor
    assert followed.slot(torch.frombuffer(memory, dtype=torch.float32)) is None
