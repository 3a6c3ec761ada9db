"""Capture of a plain torch loop: one process, DistributedDataParallel, ranks that reduce their
gradients by themselves, DTensor parallel modules.

`attach` does nothing at all unless the run is captured. An iteration is what lies between two steps
of the optimizer, or of all optimizers if there are several; a micro-batch is what the loop calls
backward for. What a plain loop cannot do is be run again by somebody else, so every leg is a launch
of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from torch import nn

from ttrace.adapters.torch import model_notes
from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.backward import LossBackward
from ttrace.adapters.torch.checkpoint import Checkpoints
from ttrace.adapters.torch.data import Data
from ttrace.adapters.torch.forwards import Forwards
from ttrace.adapters.torch.given import Given
from ttrace.adapters.torch.instruments import Instrumentation
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.losses import Losses
from ttrace.adapters.torch.repeat.repetition import Repetition
from ttrace.adapters.torch.steps import Steps
from ttrace.capture import process_messages
from ttrace.capture.course import Course
from ttrace.capture.dropout import Dropout
from ttrace.capture.patches import Patches
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.scope import Scope


class LoopCapture:
    """Of one loop. Nothing but a few hooks that do nothing until the first captured forward."""

    def __init__(
        self,
        scope: Scope,
        given: Given,
        by_library: bool,
        within: nn.Module | None,
        over: Callable[[LoopCapture], None],
    ) -> None:
        """`by_library`: the loop did not call attach itself. `within`: what is around all models
        that were given, if something is. `over(self)` is called once nothing of capture remains."""
        self.scope = scope
        self.given = given
        self.by_library = by_library
        self._over = over
        session = self._session = LoopSession(scope.settings, given.declared)
        process_messages.ran(scope.settings.out, 0)
        patches = self._patches = Patches()
        optimizers = given.optimizers
        self._model = AttachedModel(given.models, optimizers, patches, given.loss_name, within)
        self._draws = RandomDraws(session, self._innermost)
        dropout = Dropout(session, self._innermost, self._seeded_alike, self._draws)
        course = self._course = Course(session, dropout)
        backward = LossBackward(session, patches, self._backward_over, self._inside_backward)
        self._instrumentation = Instrumentation(
            session,
            self._model,
            optimizers,
            course,
            self._draws,
            backward,
            Checkpoints(session, patches),
            self._end,
        )
        self._repetition = Repetition(
            session, self._model, patches, self._instrumentation, course, self._passes_complete
        )
        ensure_started = session.guarded(self._instrumentation.ensure_started)
        self._data = Data(session, patches, course, ensure_started)
        Losses(session, patches)
        self._steps = Steps(
            session,
            self._model,
            optimizers,
            patches,
            self._instrumentation,
            course,
            self._repetition,
            backward,
            self._iteration_over,
        )
        self._forwards = Forwards(
            session,
            self._model,
            patches,
            self._instrumentation,
            course,
            self._data,
            self._repetition,
            self._steps.come_last,
        )
        session.when_over(self._end)

    @property
    def over(self) -> bool:
        return self._session.over

    @property
    def is_real(self) -> bool:
        """Whether what runs is the loop itself and not a rerun of an iteration."""
        return self._session.now.is_real

    @property
    def folder(self) -> str:
        return self._session.settings.out

    def close(self, reason: str) -> None:
        """Ends it, if it goes on: `reason` is why it was not complete."""
        self._session.leave(reason)
        self._remove()  # it may have ended in a leg, or in another process's fork

    def is_of(self, model: nn.Module) -> bool:
        """Whether it is this model that is captured."""
        return not self.over and self._model.is_in(model)

    def refuse_another(self, name: str) -> None:
        self._instrumentation.refuse_another(name)

    def one_forward(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The function's result. Inside, all calls of the model are parts of its first."""
        return self._repetition.call(partial(self._in_one_forward, function), args, kwargs)

    def _in_one_forward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._forwards.one_forward():
            return function(*args, **kwargs)

    def _innermost(self) -> str | None:
        instruments = self._instrumentation.current
        return None if instruments is None else instruments.hooks.innermost

    def _seeded_alike(self) -> dict[str, Any]:
        """accelerate and transformers seed all processes alike unless they are told otherwise."""
        libraries = [name for name in ("accelerate", "transformers") if name in sys.modules]
        dims = list(self._session.topology.batch)
        if not dims or not libraries:
            return {}
        return {"dims": dims, "why": f"{' and '.join(libraries)} seed all processes alike"}

    def _backward_over(self) -> None:
        self._steps.backward_over()

    def _iteration_over(self) -> None:
        session = self._session
        if session.due and session.started:
            self._repetition.iteration_over()
            self._passes_complete()
            self._course.step_over()
        session.next_iteration()
        if session.iteration > session.settings.iterations[-1]:
            self._end()

    def _inside_backward(self, args: Any, kwargs: Any) -> AbstractContextManager[None]:
        return self._repetition.backward(args, kwargs)

    def _passes_complete(self) -> None:
        """All has been seen of the iteration but its step. Once, whoever comes first."""
        if self._session.now.records.released:
            return
        session, instruments = self._session, self._instrumentation.current
        if instruments is not None and instruments.reduction is not None:
            instruments.reduction.complete()
        self._data.end_iteration()
        if instruments is not None:
            model_notes.note_not_called(session, instruments.hooks)
        model_notes.note_modules_beside(session, self._model)
        model_notes.note_called_without_gradients(session)
        self._draws.end_iteration()
        session.release()
        self._course.grafted()

    def _end(self) -> None:
        """Capture is complete, or was ended."""
        self._course.close()
        self._remove()

    def _remove(self) -> None:
        """Nothing of capture remains in the model or in torch."""
        self._repetition.stop()
        self._patches.undo()
        self._forwards.remove()
        self._steps.stop()
        self._instrumentation.remove()
        self._over(self)
