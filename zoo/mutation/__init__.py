"""Faults planted in a running training process, by mechanism, at places drawn from a seed.

`train_gpt.py --mutants FILE` names a JSON list of mutants, one an iteration at most. Iteration 0
is always clean: there the places are counted at which a fault can be. A mutant draws one of them,
so that one list serves every topology. What was done is written to `FILE.rank-N.jsonl`; a mutant
that no line names never happened.

A mutant is active in every call of the schedule in its iteration. A tool that calls the schedule
again meets the same fault at the same place. The optimizer's moments are put back after a mutant's
step; weights are not, because whoever compares runs gives them their own.
"""

from __future__ import annotations

from typing import Any


def plant(path: str, model: list[Any], optimizer: Any) -> None:
    """To be called once, when model and optimizer are built and before the first step. `model` are
    the chunks of this stage, as the schedules are given them."""
    # Not at the top: whoever writes lists of mutants needs no framework.
    from mutation.plant import Plant

    Plant(path, model, optimizer)
