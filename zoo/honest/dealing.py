"""Which rows of a global batch a rank takes, and in which micro-batch."""

from __future__ import annotations

import itertools
import random

DEALS = ("contiguous", "strided", "blocks", "permuted")


def deal(
    rows: list[int], how: str, rank: int, ranks: int, micro_batches: int, seed: int = 0
) -> list[list[int]]:
    """The rows of each micro-batch of this rank. All ranks together take every row once."""
    if how == "blocks":
        return [cut(block, ranks)[rank] for block in cut(rows, micro_batches)]
    if how == "strided":
        mine = rows[rank::ranks]
    elif how == "permuted":
        # All ranks draw the same order; runs of other sizes draw another one.
        mine = cut(random.Random(1000 * seed + ranks).sample(rows, len(rows)), ranks)[rank]
    else:
        mine = cut(rows, ranks)[rank]
    return cut(mine, micro_batches)


def cut(rows: list[int], parts: int) -> list[list[int]]:
    """Parts of consecutive rows; the first ones have a row more where it does not divide."""
    size, more = divmod(len(rows), parts)
    starts = [part * size + min(part, more) for part in range(parts + 1)]
    return [rows[a:b] for a, b in itertools.pairwise(starts)]
