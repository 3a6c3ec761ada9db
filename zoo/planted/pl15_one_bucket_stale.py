"""PL15: one bucket of parameters is not gathered.

With overlap each module's forward waits for the gather of its bucket. One bucket is taken for
gathered, and half of its parameters are those before the update.

Needs: DP, distributed optimizer with overlap, several buckets, the second step.
"""

from __future__ import annotations

from typing import Any

ID = "PL15"
TITLE = "Distributed optimizer: one bucket of parameters is not gathered"
NPROC = 2
FLAGS = [
    "--distributed-optimizer",
    "--overlap-grad-reduce",
    "--overlap-param-gather",
    "--bucket-size",
    "20000",
]
EXPECT = {
    "fqn": [r".+\.(weight|bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["S"],
    "iteration": 0,
}


def inject() -> None:
    """After construction the second bucket says that it has begun, and does not."""
    from megatron.core.distributed import distributed_data_parallel

    ddp = distributed_data_parallel.DistributedDataParallel
    construct = ddp.__init__

    def construct_with_stale_bucket(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        stale = self.bucket_groups[1]

        def pretend(force_sync: bool = False) -> None:
            stale.param_gather_dispatched = True

        stale.start_param_sync = pretend

    ddp.__init__ = construct_with_stale_bucket
