"""One call of the schedule that is captured: the real call first and untouched, then its reruns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ttrace.adapters.megatron.batch import DataItems, trace_losses
from ttrace.adapters.megatron.buffers import record_buffers
from ttrace.adapters.megatron.hidden_data import HiddenData
from ttrace.adapters.megatron.inputs import OwnInputs
from ttrace.adapters.megatron.replayer import MegatronReplayer
from ttrace.capture import replay_data, rerun
from ttrace.capture.legs import LegFactory, running
from ttrace.capture.rerun import Reruns

if TYPE_CHECKING:
    from ttrace.adapters.megatron.capture import MegatronCapture


class CapturedCall:
    """Made before the call, so that whatever fails then leaves the call to itself."""

    def __init__(
        self, capture: MegatronCapture, schedule: Callable[..., Any], arguments: dict[str, Any]
    ) -> None:
        self._capture = capture
        self._schedule = schedule
        model = arguments["model"]
        self._model = capture.begin(list(model) if isinstance(model, list) else [model])
        self._batch = capture.batch_of(self._model, arguments)
        iteration = capture.session.iteration
        if self._batch.loss_scale != 1:
            capture.session.note("loss_scale", iteration=iteration, scale=self._batch.loss_scale)
        self._model.begin_call(self._batch)
        if iteration == capture.settings.iterations[0]:
            record_buffers(self._model, capture.course.graft)
        self._items = DataItems(self._model, self._batch, iteration, capture.course.graft)
        self._keep = bool(capture.settings.legs)
        assert capture.iteration is not None
        capture.iteration.begin_schedule(
            OwnInputs(self._model, self._items, capture.course.graft, self._keep)
        )
        source = arguments["data_iterator"]
        self._hidden = HiddenData(arguments["forward_step_func"] if _is_none(source) else None)
        self._arguments = {
            **arguments,
            "data_iterator": self._wrap(source),
            "forward_step_func": trace_losses(self._model, arguments["forward_step_func"]),
        }
        self._reruns: Reruns | None = None
        self._replayer = MegatronReplayer(
            self._model, capture.course, schedule, self._arguments, self._batch, self._hidden
        )
        self._own_leg = capture.own_leg(self._model)

    def _wrap(self, source: Any) -> Any:
        return replay_data.wrap(source, self._items.inspect, self._keep)

    def run(self) -> Any:
        capture, session = self._capture, self._capture.session
        legs = capture.settings.legs
        try:
            own = self._own_leg
            with session.around(lambda: self._hidden.wrapped(self._wrap)) as iterators:
                self._replayer.rewind_too(iterators or [])
                if legs:
                    session.guarded(self._prepare_reruns)()
                with session.around(lambda: running(own)), self._model.hooks.rewriting(own.rewrite):
                    with session.around(lambda: capture.finalizing(self._model)):
                        result = self._schedule(**self._arguments)
                session.guarded(capture.after_real_call)()
                if legs:
                    self._rerun()
            return result
        finally:
            capture.end_schedule()

    def _prepare_reruns(self) -> None:
        capture = self._capture
        self._reruns = Reruns(
            capture.session,
            self._model.hooks,
            self._replayer,
            capture.session.iteration,
            LegFactory(capture.session, self._replayer.refusal, self._replayer.full_precision),
        )

    def _rerun(self) -> None:
        """Every rank takes part in the first vote, whatever happened to its capture."""
        capture = self._capture
        session = capture.session
        session.guarded(capture.before_reruns)(self._replayer)
        if self._reruns is None:
            rerun.refuse(session)
        else:
            self._reruns.run(capture.settings.legs)


def _is_none(source: Any) -> bool:
    return all(item is None for item in source) if isinstance(source, list) else source is None
