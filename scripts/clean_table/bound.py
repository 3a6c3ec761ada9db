"""How often something may happen that was seen k times in n tries."""

from __future__ import annotations

import math


def upper_bound(seen: int, tries: int, confidence: float = 0.95) -> float:
    """Clopper and Pearson's, one-sided and exact: the p at which so few or fewer would be seen with
    a probability of 1 - confidence."""
    if seen >= tries:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(seen, tries, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(seen: int, tries: int, p: float) -> float:
    return sum(math.comb(tries, k) * p**k * (1 - p) ** (tries - k) for k in range(seen + 1))
