"""Calls of the schedule, however their arguments are written."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import torch
from torch import nn

from ttrace.adapters.megatron import repeats
from ttrace.adapters.megatron.capture import _bound
from ttrace.adapters.megatron.store import Store


def schedule(forward_step_func, data_iterator, model, *, num_microbatches=1, **others):
    pass


SIGNATURE = inspect.signature(schedule)


def test_positional_arguments_have_names() -> None:
    given = _bound(SIGNATURE, (1, 2, 3), {"num_microbatches": 4, "forward_only": True})
    assert given == {
        "forward_step_func": 1,
        "data_iterator": 2,
        "model": 3,
        "num_microbatches": 4,
        "forward_only": True,
    }


def test_what_has_no_name_is_told() -> None:
    def anything(*args):
        pass

    assert _bound(inspect.signature(anything), (1, 2), {}) is None
    assert _bound(SIGNATURE, (1, 2, 3, 4), {}) is None


def gradients_of(*values: float) -> Store:
    parameter = nn.Parameter(torch.zeros(len(values)))
    parameter.grad = torch.tensor(values)
    entry = SimpleNamespace(fqn="weight", original=parameter)
    found = Store.__new__(Store)
    found._model = SimpleNamespace(parameters=lambda: [entry])
    return found


def test_gradients_that_are_not_numbers_are_unchanged_if_nobody_changed_them() -> None:
    found = gradients_of(float("nan"), 1.0)
    before = found.fingerprint()
    assert found.fingerprint() == before
    assert gradients_of(float("nan"), 2.0).fingerprint() != gradients_of(1.0, 2.0).fingerprint()


def test_a_leg_does_not_answer_to_megatrons_validation() -> None:
    from megatron.core import rerun_state_machine as library

    asked = []
    before = library._GLOBAL_RERUN_STATE_MACHINE
    library._GLOBAL_RERUN_STATE_MACHINE = None
    try:
        assert not repeats.is_repetition()
        library.initialize_rerun_state_machine(mode=library.RerunMode.VALIDATE_RESULTS)
        machine = library.get_rerun_state_machine()
        machine.first_iteration_complete = True
        machine.state = library.RerunState.INITIAL_RUN
        assert not repeats.is_repetition()
        with repeats.not_validating():
            machine.validate_result(torch.ones(()), asked.append, "in a leg")
        assert not asked
        machine.validate_result(torch.ones(()), asked.append, "in the run")
        assert asked
        machine.state = library.RerunState.RERUNNING_IN_PLACE
        assert repeats.is_repetition()
    finally:
        library._GLOBAL_RERUN_STATE_MACHINE = before
