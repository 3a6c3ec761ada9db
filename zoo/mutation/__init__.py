"""Faults planted in a running training process, by mechanism, at places drawn from a seed.

`train_gpt.py --mutants FILE` names a JSON list of mutants, one an iteration at most. Iteration 0
is always clean: there the places are counted at which a fault can be (see `course.py`). A mutant
draws one of them, so that one list serves every topology. What was done is written to
`FILE.rank-N.jsonl`; a mutant that no line names never happened.

A mutant is active in every call of the schedule in its iteration. A tool that calls the schedule
again meets the same fault at the same place.
"""

from __future__ import annotations

from mutation.plant import Plant


def plant(path: str, model: object, optimizer: object) -> Plant:
    """To be called once, when model and optimizer are built and before the first step."""
    return Plant(path, model, optimizer)
