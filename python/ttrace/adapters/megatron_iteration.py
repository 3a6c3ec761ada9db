"""The course of Megatron's training iterations: real call, reruns, optimizer step.

Errors of this tool end capture and nothing else; errors of the user's code pass through.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from ttrace.adapters import (
    megatron_fp32,
    megatron_hyperparameters,
    megatron_notes,
    megatron_repeats,
)
from ttrace.adapters.megatron_batch import DataItems, trace_losses
from ttrace.adapters.megatron_buffers import record_buffers
from ttrace.adapters.megatron_gradients import Gradients, gradient_of
from ttrace.adapters.megatron_hidden_data import HiddenData
from ttrace.adapters.megatron_inputs import OwnInputs
from ttrace.adapters.megatron_loss_scale import divided, loss_scale
from ttrace.adapters.megatron_model import Chunk, Model
from ttrace.adapters.megatron_replayer import MegatronReplayer
from ttrace.capture import collective_calls, replay_data, rerun
from ttrace.capture.collectives import CollectiveLog
from ttrace.capture.dropout import Dropout
from ttrace.capture.graft import Graft
from ttrace.capture.legs import Leg, make_leg, running
from ttrace.capture.noise import Noise
from ttrace.capture.placed import Batch, Moment
from ttrace.capture.rerun import Reruns
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName, Settings


class MegatronCapture:
    """One per process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = Session(settings)
        self._model: Model | None = None
        self._gradients: Gradients | None = None
        self._collectives: CollectiveLog | None = None
        self._graft: Graft | None = None
        self._dropout = Dropout(self.session, self._innermost, _seeded_alike)
        self._optimizer: Any = None
        self._unread: set[int] = set()  # owners whose parameters this iteration has not read
        self._in_schedule = False
        self._own_inputs: OwnInputs | None = None
        self._fingerprint: Any = None
        self._changed_before_step = False

    def _innermost(self) -> str | None:
        return None if self._model is None else self._model.hooks.innermost

    # The schedule

    def wrap_schedule(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(schedule)

        @functools.wraps(schedule)
        def traced(*args: Any, **kwargs: Any) -> Any:
            arguments = _bound(signature, args, kwargs)
            if arguments is None:
                self.session.stop("the schedule was called with arguments that have no names")
            if arguments is None or arguments.get("forward_only"):
                with collective_calls.unheard():
                    return schedule(*args, **kwargs)
            return self._training_call(schedule, arguments)

        return traced

    def _training_call(self, schedule: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        session = self.session
        if megatron_repeats.is_repetition():
            return self._repeated_call(schedule, arguments)
        session.iteration += 1
        if session.iteration not in self.settings.iterations:
            try:
                self._leave()
            except Exception as error:
                session.stop(error)
            return schedule(**arguments)
        call = None
        if not session.over:
            try:
                call = _Call(self, schedule, arguments)
            except Exception as error:
                session.stop(error)
        if call is not None:
            return call.run()
        result = schedule(**arguments)
        if self.settings.legs:
            rerun.refuse(session)
        return result

    def _repeated_call(self, schedule: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """The loop checks the iteration that is recorded already: on the same data."""
        try:
            arguments = self._repeated_arguments(arguments)
        except Exception as error:
            self.session.stop(error)
        with collective_calls.unheard():
            return schedule(**arguments)

    def _repeated_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._captured() or self._graft is None or not self._graft.data:
            return arguments
        assert self._model is not None
        items = DataItems(
            self._model,
            self._make_batch(self._model, arguments),
            self.session.iteration,
            self._graft,
            repeated=True,
        )
        source = replay_data.wrap(arguments["data_iterator"], items.inspect, False)
        return {**arguments, "data_iterator": source}

    def _make_batch(self, model: Model, arguments: dict[str, Any]) -> Batch:
        dp = model.topology.size["dp"]
        calls, rows = arguments["num_microbatches"], arguments["micro_batch_size"]
        factor = loss_scale(model.config, model.device)
        scale = divided(model.chunks[0].rules.gradient_scale(), factor)
        return Batch(calls * rows * dp, rows, calls, scale, factor)

    def _leave(self) -> None:
        """After the last captured iteration nothing of capture remains in the model."""
        if session_done(self.session, self.settings) and self._model is not None:
            if self.session.recording:
                self.session.finish()
            if self._collectives is not None:
                self._collectives.stop()
            self._dropout.remove()
            self._model.remove_hooks()
            self._model = None

    def begin(self, wrapped: list[torch.nn.Module]) -> Model:
        """At each captured iteration; does everything at the first."""
        if self._model is None:
            self._model = self._start(wrapped)
        assert self._gradients is not None and self._collectives is not None
        self._gradients.begin()
        self.session.input_bytes = 0
        self._collectives.begin()
        self._unread = {id(entry.owner) for entry in self._model.parameters()}
        self._in_schedule = True
        return self._model

    def _start(self, wrapped: list[torch.nn.Module]) -> Model:
        session, settings = self.session, self.settings
        # Known before anything is opened: messages name the rank.
        session.rank = dist.get_rank()
        graft = Graft(session) if settings.graft is not None else None
        model = Model(session, wrapped, graft.shape_of if graft and graft.weights else None)
        topology = model.topology
        session.start(
            dist.get_rank(),
            dist.get_world_size(),
            list(topology.size.items()),
            list(topology.coordinate.values()),
            megatron_notes.facts(model),
        )
        self._gradients = Gradients(model)
        self._collectives = CollectiveLog(
            session,
            model.hooks,
            lambda: ((entry.fqn, gradient_of(entry)) for entry in model.parameters()),
            stable=True,
        )
        self._graft = graft
        session.note("replayer", name="megatron")
        model.install(self._forward_begins, self._owner_called)
        megatron_notes.write_notes(model)
        return model

    # Events inside the real call

    def _forward_begins(
        self, chunk: Chunk, forward: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Of the whole model, for one micro-batch: before any of its hooks."""
        if forward == 0 and self.session.leg == self.settings.leg:
            for entry in chunk.parameters:
                if entry.early:
                    self._owner_called(entry.owner)
        if self._own_inputs is None:
            return None
        return self._own_inputs.enter(chunk, forward, args, kwargs)

    def _owner_called(self, owner: torch.nn.Module) -> None:
        """Parameters are read where the first forward uses them, after any gather."""
        if id(owner) in self._unread and self.session.leg == self.settings.leg:
            self._unread.discard(id(owner))
            self._read_parameters(owner, used=False)

    def _read_parameters(self, owner: torch.nn.Module, used: bool) -> None:
        model, session, iteration = self._model, self.session, self.session.iteration
        assert model is not None
        first = iteration == self.settings.iterations[0]
        for entry in model.parameters():
            if entry.owner is not owner:
                continue
            session.record(
                entry.fqn,
                "param" if first else "param_updated",
                "",
                entry.original,
                entry.rule.placements,
                iteration=iteration if first else iteration - 1,
                pass_="forward" if first else "optimizer",
                always=True,
            )
            if self._graft is not None:
                self._graft.parameter(
                    entry.fqn, entry.original, entry.rule.placements, iteration, used
                )

    def read_what_was_not_used(self) -> None:
        """Parameters that no module's forward asked for."""
        assert self._model is not None
        for entry in list(self._model.parameters()):
            if id(entry.owner) in self._unread:
                self._unread.discard(id(entry.owner))
                self._read_parameters(entry.owner, used=True)

    def before_reduction(self, group: Any) -> None:
        if self._in_schedule and self._gradients is not None:
            self.session.guarded(self._gradients.before_reduction)(group)

    # Recomputed forwards

    @property
    def moment(self) -> Moment | None:
        return self.session.moment

    def recomputing(self, moment: Moment | None) -> AbstractContextManager[None]:
        """Inside, the forward of `moment` runs again."""
        return self.session.inside(moment, "recompute")

    # Where collectives come from

    def reducing(self, group: Any = None) -> AbstractContextManager[None]:
        """Inside, gradients are reduced: those of a bucket group, or of whom is not known yet."""
        return self.session.around(lambda: self._reducing(group))

    def _reducing(self, group: Any) -> AbstractContextManager[None]:
        log, model = self._collectives, self._model
        if log is None or model is None:
            return nullcontext()
        buckets = getattr(group, "buckets", ())
        entries = (model.entry_of(p) for bucket in buckets for p in bucket.params_list)
        return log.inside("reduction", [entry.fqn for entry in entries if entry is not None])

    def flattened(self, tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
        if self._collectives is not None and self._model is not None:
            self.session.guarded(self._collectives.copied)(tensors, flat)

    @contextmanager
    def finalizing(self, model: Model) -> Iterator[None]:
        """What the schedule calls to finish gradients may be the user's own function."""
        from megatron.core.utils import get_model_config

        config = get_model_config(model.wrapped[0])
        original = getattr(config, "finalize_model_grads_func", None)
        if original is None:
            yield
            return

        @functools.wraps(original)
        def finalize(*args: Any, **kwargs: Any) -> Any:
            with self.reducing():
                return original(*args, **kwargs)

        config.finalize_model_grads_func = finalize
        try:
            yield
        finally:
            config.finalize_model_grads_func = original

    # After the real call

    def after_real_call(self) -> None:
        model, gradients = self._model, self._gradients
        assert model is not None and gradients is not None
        model.hooks.flush()
        gradients.after_backward()
        self.read_what_was_not_used()
        if self.session.iteration == self.settings.iterations[0]:
            self.session.note("reduction_order", names=list(gradients.reduction_order))
            megatron_notes.note_not_called(model)
        if self._graft is not None:
            self._graft.report(self.session.iteration)
            if self._graft.weights and self._optimizer is not None:
                # Masters follow the grafted working copies.
                self._optimizer.reload_model_params()

    def before_reruns(self, replayer: MegatronReplayer) -> None:
        assert self._gradients is not None
        replayer.records_reduced = not self._changed_before_step
        self._fingerprint = self._gradients.fingerprint()

    def end_schedule(self) -> None:
        self._in_schedule = False
        self._own_inputs = None
        self.session.moment = None
        if self._model is not None:
            self._model.batch = None

    # The optimizer

    def wrap_optimizer(self, optimizer: Any) -> Any:
        self._optimizer = optimizer
        original = getattr(optimizer, "step", None)
        if original is None:
            return optimizer

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            self.session.guarded(self._before_step)()
            with self._stepping():
                result = original(*args, **kwargs)
            self.session.guarded(self._after_step)(result)
            return result

        optimizer.step = step
        return optimizer

    def _stepping(self) -> AbstractContextManager[None]:
        log = self._collectives
        return (
            nullcontext() if log is None else self.session.around(lambda: log.inside("optimizer"))
        )

    def _captured(self) -> bool:
        return self._model is not None and self.session.iteration in self.settings.iterations

    def _before_step(self) -> None:
        if not self._captured():
            return
        assert self._gradients is not None
        if self._fingerprint is not None:
            if self._fingerprint != self._gradients.fingerprint():
                self._changed_before_step = True
                self.session.note(
                    "notice",
                    text=f"iteration {self.session.iteration}: gradients changed between the"
                    " schedule's end and the optimizer's step: grad_reduced of reruns is not"
                    " comparable with it",
                )
            self._fingerprint = None
        self._gradients.reduced()
        if self._model is not None and self._optimizer is not None:
            megatron_hyperparameters.note_step(self._model, self._optimizer)

    def _after_step(self, result: Any) -> None:
        if not self._captured():
            return
        session = self.session
        if isinstance(result, tuple) and result and result[0] is False:
            reason = "the optimizer found gradients that are not finite and made no step"
            session.note("skipped_step", iteration=session.iteration, reason=reason)
        if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
            norm = torch.as_tensor(result[1]).detach().to(torch.float32).reshape(())
            session.record(
                "grad_norm", "grad_norm", "", norm, iteration=session.iteration, pass_="optimizer"
            )
        if self._collectives is not None:
            self._collectives.end()
        self._dropout.end_iteration()
        session.seal(session.iteration, session.leg)
        if session.iteration == self.settings.iterations[-1]:
            session.finish()

    # Running as a leg: one launch per leg

    def own_leg(self, model: Model) -> Leg | None:
        """The leg that this whole launch is, if it is not the real one."""
        name = self.settings.leg
        if name == "real":
            return None
        parsed = LegName.parse(name)
        reason = megatron_fp32.refusal(model.wrapped) if parsed.fp32 else None
        if parsed.isolated:
            reason = "an isolated leg needs the real call before it in the same launch"
        if reason is not None:
            self.session.note(
                "leg_skipped",
                leg=name,
                iteration=self.session.iteration,
                reason=reason,
                expected=parsed.fp32 and not megatron_fp32.is_low_precision(model.wrapped),
            )
            return None
        noise = Noise(self.session, parsed.noise) if parsed.noise else None
        return make_leg(name, noise, lambda: megatron_fp32.full_precision(model.wrapped))


class _Call:
    """One captured training call of the schedule."""

    def __init__(
        self, capture: MegatronCapture, schedule: Callable[..., Any], arguments: dict[str, Any]
    ) -> None:
        self._capture = capture
        self._schedule = schedule
        model = arguments["model"]
        self._model = capture.begin(list(model) if isinstance(model, list) else [model])
        self._batch = capture._make_batch(self._model, arguments)
        iteration = capture.session.iteration
        if self._batch.loss_scale != 1:
            capture.session.note("loss_scale", iteration=iteration, scale=self._batch.loss_scale)
        self._model.begin_call(self._batch)
        if iteration == capture.settings.iterations[0]:
            record_buffers(self._model, capture._graft)
        self._items = DataItems(self._model, self._batch, iteration, capture._graft)
        self._keep = bool(capture.settings.legs)
        capture._own_inputs = OwnInputs(self._model, self._items, capture._graft, self._keep)
        source = arguments["data_iterator"]
        self._hidden = HiddenData(arguments["forward_step_func"] if _is_none(source) else None)
        self._arguments = {
            **arguments,
            "data_iterator": self._wrap(source),
            "forward_step_func": trace_losses(self._model, arguments["forward_step_func"]),
        }
        self._reruns: Reruns | None = None
        self._replayer = MegatronReplayer(
            self._model, capture._gradients, schedule, self._arguments, self._batch, self._hidden
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
                self._replayer.iterators = iterators or []
                if legs:
                    session.guarded(self._prepare_reruns)()
                with session.around(lambda: running(own)) if own else nullcontext():
                    self._model.hooks.rewrite = own.rewrite if own else None
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


def _seeded_alike() -> dict[str, Any]:
    """Megatron-LM's own training script draws one dropout mask for all data-parallel ranks, unless
    it is told otherwise, and for all context-parallel ranks. megatron-core alone leaves seeds to
    its caller."""
    training = sys.modules.get("megatron.training.global_vars")
    arguments = getattr(training, "_GLOBAL_ARGS", None)
    if arguments is None:
        return {}
    if getattr(arguments, "data_parallel_random_init", False):
        return {"dims": ["cp"], "why": "Megatron-LM seeds context-parallel ranks alike"}
    why = "Megatron-LM seeds data-parallel ranks alike without --data-parallel-random-init"
    return {"dims": ["dp", "cp"], "why": why}


def session_done(session: Session, settings: Settings) -> bool:
    return session.over or session.iteration > settings.iterations[-1]


def _bound(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """A call of the schedule by the names of its parameters; None: it has none for what is given,
    or is about to fail anyway."""
    if not args:
        return kwargs
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    named: dict[str, Any] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            return None
        else:
            named[name] = value
    return named


def _is_none(source: Any) -> bool:
    return all(item is None for item in source) if isinstance(source, list) else source is None
