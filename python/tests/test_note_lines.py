"""Notes about many names fit into the lines of an index."""

import json

from ttrace.capture.note_lines import in_lines

LINE = 1 << 20


def test_many_names_are_cut_in_their_order_and_none_is_lost():
    names = [f"module.{number}.weight" for number in range(50_000)]
    parts = list(in_lines(names))
    assert 1 < len(parts) < 20
    assert [name for part in parts for name in part] == names
    for part in parts:  # as two numbers for each of them are noted
        numbers = dict.fromkeys(part, -1.2345678901234567e-308)
        assert len(json.dumps([numbers, numbers])) < LINE


def test_long_names_make_more_lines_than_short_ones():
    names = [f"{number}" + "\u202e" * 10_000 for number in range(100)]
    parts = list(in_lines(names))
    assert [name for part in parts for name in part] == names
    assert max(len(json.dumps(part)) for part in parts) < LINE / 2


def test_of_nothing_there_is_no_line():
    assert list(in_lines([])) == []
    assert list(in_lines(["one"])) == [["one"]]
