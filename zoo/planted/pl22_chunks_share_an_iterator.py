"""PL22: the chunks of a stage take their samples from one iterator.

Every chunk counts the samples for itself, also those that only need their number. If they share an
iterator, each takes what is the other's: tokens and labels are of different micro-batches.

Needs: VPP.
"""

from __future__ import annotations

from typing import Any

ID = "PL22"
TITLE = "VPP: chunks of a stage take samples from one iterator"
NPROC = 2
FLAGS = ["--pp", "2", "--vpp", "2"]
EXPECT = {
    "fqn": [""],
    "direction": "forward",
    "stage": "input",
    "classes": ["R"],
}


def inject() -> None:
    """The schedule gets the first iterator for all chunks."""
    from megatron.core.pipeline_parallel import schedules

    schedule = schedules.forward_backward_pipelining_with_interleaving

    def with_one_iterator(**arguments: Any) -> Any:
        iterators = arguments["data_iterator"]
        arguments["data_iterator"] = [iterators[0]] * len(iterators)
        return schedule(**arguments)

    schedules.forward_backward_pipelining_with_interleaving = with_one_iterator
