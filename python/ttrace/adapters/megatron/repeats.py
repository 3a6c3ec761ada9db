"""Megatron's rerun state machine: a step that it repeats to check a result is no new iteration."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MODULE = "megatron.core.rerun_state_machine"


def _machine() -> Any:
    """The one there is, without making one."""
    return getattr(sys.modules.get(_MODULE), "_GLOBAL_RERUN_STATE_MACHINE", None)


def is_repetition() -> bool:
    """Whether the schedule runs to repeat the step that it has just run."""
    state = getattr(_machine(), "state", None)
    return getattr(state, "name", "") == "RERUNNING_IN_PLACE"


@contextmanager
def not_validating() -> Iterator[None]:
    """Inside, results are not validated: those of a leg are none of the run's."""
    machine = _machine()
    if machine is None:
        yield
        return
    machine.validate_result = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del machine.validate_result
