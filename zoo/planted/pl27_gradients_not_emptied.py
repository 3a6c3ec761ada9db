"""PL27: gradients are not emptied between two iterations.

The second backward adds to what the first one left. Every term that it adds is right. The call is
missing in the loop: who else empties gradients, as reruns do, does so.

Needs: the second iteration.
"""

from __future__ import annotations

import sys
from typing import Any

ID = "PL27"
TITLE = "the loop empties gradients once, and not in each iteration"
NPROC = 2
FLAGS = ["--tp", "2", "--sp"]
EXPECT = {
    "fqn": [r".+"],
    "direction": "backward",
    "stage": "compute",
    "iteration": 1,
    "classes": ["S"],
}


def inject() -> None:
    from megatron.core.distributed import DistributedDataParallel

    zero_grad_buffer = DistributedDataParallel.zero_grad_buffer
    begun = set()

    def once(self: Any) -> None:
        of_loop = sys._getframe(1).f_globals["__name__"] in ("__main__", "__ranks__")
        if not of_loop or id(self) not in begun:
            zero_grad_buffer(self)
        if of_loop:
            begun.add(id(self))

    DistributedDataParallel.zero_grad_buffer = once
