"""Steps of an iteration that the loop makes before its last: a part of what a leg makes again."""

from __future__ import annotations

import torch

from ttrace.adapters.torch.loss_scale import parameters_of
from ttrace.adapters.torch.repeat.ambient import Ambient
from ttrace.adapters.torch.repeat.calls_of_torch import CallsOfTorch
from ttrace.adapters.torch.repeat.kept_step import CannotBeKept, KeptStep
from ttrace.adapters.torch.repeat.tape import Event, Kind, Tape


class StepsBetween:
    """Of one loop. What torch is called for within a step is not looked at."""

    def __init__(self, calls: CallsOfTorch) -> None:
        self._calls = calls
        self._running: Event | None = None

    def begins(self, tape: Tape, optimizer: torch.optim.Optimizer, keeps_gradients: bool) -> None:
        """Gradients are what it will find. `keeps_gradients`: they are needed to make it again."""
        self.over(None)
        name = f"the step of {type(optimizer).__name__}"
        takes = tuple(tape.slots_of(p.grad for p in parameters_of(optimizer)))
        event = Event(Kind.STEP, name, None, ((), {}), takes, Ambient.now())
        try:
            event.step = KeptStep(optimizer, keeps_gradients)
        except CannotBeKept as reason:
            event.problem = str(reason)
        if any(not tape.is_own(parameter) for parameter in parameters_of(optimizer)):
            event.problem = event.problem or f"{name} is one of parameters beside the model's"
        self._running = event
        self._calls.leave()

    def over(self, tape: Tape | None) -> None:
        """The step that runs, if one does. None: it was broken off."""
        event, self._running = self._running, None
        if event is None:
            return
        self._calls.come_back()
        if tape is not None:
            tape.end_step(event, [] if event.step is None else event.step.parameters)
