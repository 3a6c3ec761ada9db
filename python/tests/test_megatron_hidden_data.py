"""Batches that no data iterator hands to the schedule."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from ttrace.adapters.megatron.hidden_data import HiddenData
from ttrace.capture import replay_data

rows = iter(torch.arange(10.0))
drawn = 0


def helper() -> torch.Tensor:
    return next(rows)


def forward_step(iterator: object, model: object) -> torch.Tensor:
    global drawn
    drawn += 1
    sys.stdout.flush()  # a file is an iterator too
    return helper()


def wrap(source: Iterator[torch.Tensor]) -> replay_data.ReplayIterator:
    return replay_data.wrap(source, lambda position, item: item, True)


def test_a_rerun_is_given_the_items_of_the_run_and_the_next_step_new_ones() -> None:
    hidden, before = HiddenData(forward_step), rows
    with hidden.wrapped(wrap) as iterators:
        assert len(iterators) == 1
        counters = hidden.counters()
        first = [forward_step(None, None).item() for _ in range(2)]
        replay_data.rewind(iterators)
        hidden.set_counters(counters)
        assert drawn == 0
        assert [forward_step(None, None).item() for _ in range(2)] == first
    assert rows is before
    assert next(rows).item() == first[-1] + 1


def test_a_closure_is_searched_too() -> None:
    own = iter([torch.tensor(1.0), torch.tensor(2.0)])

    def step(iterator: object, model: object) -> torch.Tensor:
        return next(own)

    with HiddenData(step).wrapped(wrap) as iterators:
        value = step(None, None)
        replay_data.rewind(iterators)
        assert torch.equal(step(None, None), value)
    assert next(own).item() == 2


def test_without_a_function_there_is_nothing() -> None:
    hidden = HiddenData(None)
    with hidden.wrapped(wrap) as iterators:
        assert iterators == []
    assert hidden.counters() == []
