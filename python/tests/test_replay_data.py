from collections import namedtuple

import pytest
import torch

from ttrace.capture.replay_data import ReplayIterator, map_tensors, rewind, wrap

Pair = namedtuple("Pair", "left right")


def items():
    yield {"tokens": torch.arange(3), "nested": [torch.ones(2), None], "name": "a"}
    yield (torch.zeros(1), 7)
    yield Pair(torch.ones(1), "x")
    yield None


def unchanged(position, item):
    return item


def test_items_are_given_again_however_the_user_took_them_apart():
    iterator = wrap(items(), unchanged, keep=True)
    first = next(iterator)
    first["tokens"].add_(100)
    first.pop("nested")
    rest = [next(iterator) for _ in range(3)]
    assert rest[2] is None and rest[0][1] == 7 and isinstance(rest[1], Pair)
    for _ in range(2):
        rewind(iterator)
        again = next(iterator)
        assert torch.equal(again["tokens"], torch.arange(3))
        assert torch.equal(again["nested"][0], torch.ones(2)) and again["nested"][1] is None
        again["tokens"].zero_()
        assert [type(next(iterator)) for _ in range(3)] == [tuple, Pair, type(None)]


def test_a_rerun_that_asks_for_more_is_an_error():
    iterator = wrap(items(), unchanged, keep=True)
    next(iterator)
    rewind(iterator)
    next(iterator)
    with pytest.raises(RuntimeError, match="only 1"):
        next(iterator)


def test_none_and_lists_of_iterators_keep_their_form():
    assert wrap(None, unchanged, keep=True) is None
    wrapped = wrap([items(), None], unchanged, keep=True)
    assert isinstance(wrapped[0], ReplayIterator) and wrapped[1] is None
    next(wrapped[0])
    rewind(wrapped)
    assert next(wrapped[0])["name"] == "a"


def test_what_the_user_gets_is_what_inspection_returns():
    iterator = wrap(iter([torch.zeros(2)]), lambda position, item: item + 1 + position, keep=True)
    assert torch.equal(next(iterator), torch.ones(2))
    rewind(iterator)
    assert torch.equal(next(iterator), torch.ones(2))


def test_attributes_of_the_users_iterator_are_reached():
    class Source:
        length = 5

        def __next__(self):
            return None

    assert wrap(Source(), unchanged, keep=False).length == 5


def test_paths_name_tensors_by_keys_and_indices():
    paths = []
    map_tensors(next(items()), lambda path, tensor: paths.append(path) or tensor)
    assert paths == ["tokens", "nested.0"]
    map_tensors(torch.ones(1), lambda path, tensor: paths.append(path) or tensor)
    assert paths[-1] == "0"
