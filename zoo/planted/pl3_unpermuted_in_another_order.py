"""PL3: what experts return is put back in another order.

The order that the dispatcher remembers is off by one when it puts rows back: each token gets the
result of its neighbour among those of its expert.

Needs: experts.
"""

from __future__ import annotations

from typing import Any

ID = "PL3"
TITLE = "EP: rows come back in another order"
NPROC = 2
SHARED_FLAGS = ["--experts", "4"]
FLAGS = ["--ep", "2", *SHARED_FLAGS]
EXPECT = {
    "fqn": [r"decoder\.layers\.\d+\.mlp"],
    "direction": "forward",
    "stage": "compute",
    "classes": ["X"],
}


def inject() -> None:
    """The remembered order is rolled by one row."""
    from megatron.core.transformer.moe import token_dispatcher

    unpermute = token_dispatcher.unpermute

    def unpermute_rolled(rows: Any, order: Any, *args: Any, **kwargs: Any) -> Any:
        return unpermute(rows, order.roll(1), *args, **kwargs)

    token_dispatcher.unpermute = unpermute_rolled
