"""Notes about many names, in lines that the index takes: one is at most 1 MiB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

_BYTES = 1 << 18


def in_lines(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cuts what JSON can hold, in its order, to parts of a quarter of a line: whoever notes them
    has room for three times as much beside. Of nothing, nothing."""
    begin = size = 0
    for end, thing in enumerate(things):
        length = len(json.dumps(thing)) + 32  # a number that goes with it, and commas
        if end > begin and size + length > _BYTES:
            yield things[begin:end]
            begin, size = end, 0
        size += length
    if begin < len(things):
        yield things[begin:]
