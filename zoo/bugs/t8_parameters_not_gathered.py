"""T8: a distributed optimizer updates its shard, and nobody gathers the shards of the others.

Every data-parallel rank updates a part of the parameters and all ranks gather all parts. Without
the gather a rank goes on with old values of what others update. The first step is right.

Source: arXiv 2506.09280, bug 8. Needs: DP, distributed optimizer, the second step.
"""

from __future__ import annotations

from typing import Any

ID = "T8"
TITLE = "Distributed optimizer: updated parameters are not gathered"
SOURCE = "arXiv 2506.09280, bug 8"
NPROC = 2
FLAGS = ["--distributed-optimizer"]
EXPECT = {
    # Every parameter that has a part in another rank's shard.
    "fqn": [r".+\.(weight|bias)"],
    "direction": "update",
    "stage": "optimizer",
    "classes": ["S", "R"],
    # That of the step whose results are not gathered.
    "iteration": 0,
}


def inject() -> None:
    """The optimizer asks the model for a gather, and none is made."""
    from megatron.core.distributed import distributed_data_parallel

    def start_nothing(self: Any, *unused: Any, **unused_too: Any) -> None:
        return None

    distributed_data_parallel.DistributedDataParallel.start_param_sync = start_nothing
