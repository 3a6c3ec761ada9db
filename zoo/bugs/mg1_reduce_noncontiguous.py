"""MG1: dormant bug: the all-reduce of a non-contiguous tensor is lost.

`_reduce` sums a contiguous copy of its input and returns the input. If that is not contiguous, the
sum is in the copy. No path of a default GPT gives it such a tensor, so nothing may be reported.
megatron-core 0.16.1 still has the fault; it is written out here so that the control does not depend
on the version.

Source: Megatron-LM issue 5337, fixed by pull request 5338. Needs: TP.
"""

from __future__ import annotations

from typing import Any

ID = "MG1"
TITLE = "Control: TP all-reduce loses non-contiguous tensors, which never occur"
SOURCE = "Megatron-LM issue 5337, pull request 5338"
NPROC = 2
FLAGS = ["--tp", "2"]
EXPECT = {"clean": True}


def inject() -> None:
    """Replaces `_reduce` by one that never returns the copy which it has summed."""
    import torch
    from megatron.core.tensor_parallel import mappings

    def reduce_in_a_copy(input_: torch.Tensor, group: Any) -> torch.Tensor:
        if group.size() > 1:
            torch.distributed.all_reduce(input_.contiguous(), group=group)
        return input_

    mappings._reduce = reduce_in_a_copy
