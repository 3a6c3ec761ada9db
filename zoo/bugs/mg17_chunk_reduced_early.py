"""MG17: the gradients of a model chunk are reduced before its last micro-batch.

With virtual stages and overlap the schedule decides, after each backward, whether a chunk has had
its last micro-batch, and begins to reduce its gradients. Off by one, the last micro-batch's part is
added after the reduction: each data-parallel rank keeps its own.

Source: the grad-sync decision of Megatron-LM's interleaved schedule. Needs: VPP, DP, overlap.
"""

from __future__ import annotations

from typing import Any

ID = "MG17"
TITLE = "VPP: a chunk's gradients are reduced before its last micro-batch"
SOURCE = "Megatron-LM, interleaved schedule"
NPROC = 4
FLAGS = ["--pp", "2", "--vpp", "2", "--overlap-grad-reduce"]
EXPECT = {
    "fqn": [r".+\.(weight|bias)"],
    "direction": "backward",
    "stage": "communication",
    "classes": ["P", "R"],
}


def inject() -> None:
    """The decision looks at the next micro-batch. A reduction ends where it begins, so that what
    it misses does not depend on how fast it is."""
    from megatron.core.distributed import param_and_grad_buffer
    from megatron.core.pipeline_parallel import schedules

    from source_edit import edited

    schedules.forward_backward_pipelining_with_interleaving = edited(
        schedules.forward_backward_pipelining_with_interleaving,
        "grad_sync_virtual_microbatch_id = virtual_microbatch_id - pipeline_parallel_rank",
        "grad_sync_virtual_microbatch_id = virtual_microbatch_id + 1",
    )
    group = param_and_grad_buffer._ParamAndGradBucketGroup
    start = group.start_grad_sync

    def start_and_wait(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        if self.grad_reduce_handle is not None:
            self.grad_reduce_handle.wait()

    group.start_grad_sync = start_and_wait
