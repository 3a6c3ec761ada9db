"""What Megatron does, told to the course of a captured iteration: a call of the schedule,
reductions, recomputed forwards, the optimizer's step.

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

from ttrace.adapters.megatron import fp32, hyperparameters, notes, repeats
from ttrace.adapters.megatron.batch import DataItems, record_loss
from ttrace.adapters.megatron.call import CapturedCall
from ttrace.adapters.megatron.experts import GROUP, global_sources
from ttrace.adapters.megatron.iteration import CapturedIteration
from ttrace.adapters.megatron.loss_scale import divided, loss_scale
from ttrace.adapters.megatron.model import Chunk, Model
from ttrace.adapters.megatron.replayer import MegatronReplayer
from ttrace.adapters.megatron.router_functions import note_router_function
from ttrace.adapters.megatron.store import Store
from ttrace.capture import collective_calls, process_messages, replay_data, rerun, source_lines
from ttrace.capture.course import Course
from ttrace.capture.dropout import Dropout
from ttrace.capture.graft import Graft
from ttrace.capture.legs import Leg, LegFactory, Refusal
from ttrace.capture.placed import Batch, Position
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName, Settings


class MegatronCapture:
    """One per scope."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = Session(settings)
        self._draws = RandomDraws(self.session, self._innermost)
        dropout = Dropout(self.session, self._innermost, _seeded_alike, self._draws)
        self.course = Course(self.session, dropout)
        self.iteration: CapturedIteration | None = None
        self._model: Model | None = None
        self._store: Store | None = None
        self._optimizer: Any = None
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
        if repeats.is_repetition():
            return self._repeated_call(schedule, arguments)
        session.next_iteration()
        # The one that begins is the last, maybe.
        process_messages.ran(self.settings.out, session.iteration + 1)
        self.iteration = None
        if session.iteration not in self.settings.iterations:
            try:
                self._leave()
            except Exception as error:
                session.stop(error)
            return schedule(**arguments)
        call = None
        if not session.over:
            try:
                call = CapturedCall(self, schedule, arguments)
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
        graft = self.course.graft
        if not self.course.captures or graft is None or not graft.data:
            return arguments
        assert self._model is not None
        batch = self.batch_of(self._model, arguments)
        items = DataItems(self._model, batch, self.session.iteration, graft, repeated=True)
        source = replay_data.wrap(arguments["data_iterator"], items.inspect, False)
        return {**arguments, "data_iterator": source}

    def batch_of(self, model: Model, arguments: dict[str, Any]) -> Batch:
        dp = model.topology.size["dp"]
        calls, rows = arguments["num_microbatches"], arguments["micro_batch_size"]
        factor = loss_scale(model.config, model.device)
        scale = divided(model.chunks[0].rules.gradient_scale(), factor)
        return Batch(calls * rows * dp, rows, calls, scale, factor)

    def _leave(self) -> None:
        """After the last captured iteration nothing of capture remains in the model."""
        over = self.session.over or self.session.iteration > self.settings.iterations[-1]
        if over and self._model is not None:
            self.course.close()
            self._model.remove_hooks()
            if self._store is not None:
                self._store.remove()
            self._model = self._store = self.iteration = None

    def close(self, reason: str) -> None:
        """Whatever has come of it: nothing of capture remains."""
        self.session.leave(reason)
        self._leave()
        self.course.close()
        step = getattr(self._optimizer, "__dict__", {}).get("step")
        if getattr(step, "ttrace_captures", None) is self:
            del self._optimizer.step
        self._optimizer = None

    def begin(self, wrapped: list[torch.nn.Module]) -> Model:
        """At each captured iteration; does everything at the first."""
        if self._model is None:
            self._model = self._start(wrapped)
        self._model.go_last()
        self.course.begin()
        owners = (entry.owner for entry in self._model.parameters())
        self.iteration = CapturedIteration(self.session, owners)
        return self._model

    def _start(self, wrapped: list[torch.nn.Module]) -> Model:
        session, settings = self.session, self.settings
        session.identify(dist.get_rank())
        graft = Graft(session) if settings.graft is not None else None
        shape_of = graft.shape_of if graft and graft.weights else None
        model = Model(session, wrapped, self._draws, shape_of)
        topology = model.topology
        session.start(
            dist.get_rank(),
            dist.get_world_size(),
            *topology.mesh,
            notes.facts(model),
            topology.views(),
        )
        self._store = Store(model)
        self._store.step_by(self._optimizer)
        self._store.watch()
        self.course.open(model.hooks, self._store, graft, stable=True)
        session.note("replayer", name="megatron")
        if topology.views():
            ranks = global_sources(topology, model.config)
            session.note("expert_group", name=GROUP, sources=ranks)
        model.install(self._forward_begins, self._owner_called, self._forward_over)
        notes.write_notes(model)
        return model

    # Events inside the real call

    def _forward_begins(
        self, chunk: Chunk, forward: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Of the whole model, for one micro-batch: before any of its hooks."""
        if forward == 0 and self.session.leg == self.settings.leg:
            for entry in chunk.parameters:
                if entry.early and not chunk.gathers_where_used(entry):
                    self._owner_called(entry.owner)
        own_inputs = None if self.iteration is None else self.iteration.own_inputs
        return None if own_inputs is None else own_inputs.enter(chunk, forward, args, kwargs)

    def _forward_over(self, chunk: Chunk, output: Any) -> None:
        if self.iteration is not None:
            self.iteration.early.forward_over(chunk, output)

    def _owner_called(self, owner: torch.nn.Module) -> None:
        """Parameters are read where the first forward uses them, after any gather."""
        iteration, is_real = self.iteration, self.session.leg == self.settings.leg
        if iteration is not None and is_real and iteration.read(owner):
            self._read_parameters(owner, used=False)

    def _read_parameters(self, owner: torch.nn.Module, used: bool) -> None:
        assert self._store is not None
        self.course.read(self._store.owned_by(owner), used)

    def read_what_was_not_used(self) -> None:
        """Parameters that no module's forward asked for."""
        assert self._model is not None and self.iteration is not None
        for entry in list(self._model.parameters()):
            if self.iteration.read(entry.owner):
                self._read_parameters(entry.owner, used=True)

    def before_reduction(self, group: Any) -> None:
        """At the entry of a bucket group's reduction."""
        store, reducing = self._store, self.course.reducing
        if store is not None:
            self.session.guarded(lambda: reducing(store.of_bucket_group(group)))()
            self.session.guarded(self._note_reduction)(group)

    def _note_reduction(self, group: Any) -> None:
        if self._model is not None and self.iteration is not None:
            buckets = group.buckets
            self.iteration.early.reducing(self._model, [p for b in buckets for p in b.params_list])

    def routing(self, router: Any, logits: torch.Tensor) -> None:
        """A router is about to choose by these."""
        if self._model is not None and self.session.moment is not None:
            self.session.guarded(self._model.record_scores)(router, logits)
            self.session.guarded(note_router_function)(self._model, router, logits)

    def loss_made(self, returned: Any) -> None:
        """The schedule's forward step of a micro-batch is over, and has put out this."""
        if self._model is not None and self._model.has_loss:
            self.session.guarded(record_loss)(self._model, returned)

    # Random numbers

    def other_numbers(self) -> AbstractContextManager[None]:
        """Inside, a tracker has put the state of another course into the generators."""
        return self._draws.apart()

    # Recomputed forwards

    @property
    def position(self) -> Position | None:
        return self.session.now.position()

    def recomputing(self, position: Position | None) -> AbstractContextManager[None]:
        """Inside, the forward runs again from there on."""
        return self.session.now.recomputing(position)

    # Where collectives come from

    def reducing(self, group: Any = None) -> AbstractContextManager[None]:
        """Inside, gradients are reduced: those of a bucket group, or of whom is not known yet."""
        return self.session.around(lambda: self._reducing(group))

    def _reducing(self, group: Any) -> AbstractContextManager[None]:
        log, model = self.course.collectives, self._model
        if log is None or model is None:
            return nullcontext()
        buckets = getattr(group, "buckets", ())
        entries = (model.entry_of(p) for bucket in buckets for p in bucket.params_list)
        return log.inside("reduction", [entry.fqn for entry in entries if entry is not None])

    def flattened(self, tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
        log = self.course.collectives
        if log is not None:
            self.session.guarded(log.copied)(tensors, flat)

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
        model = self._model
        assert model is not None and self.iteration is not None
        self.course.backward_done()
        self._draws.end_iteration()
        self.iteration.early.write(model)
        self.read_what_was_not_used()
        if self.course.is_first:
            notes.note_not_called(model)
        self.course.grafted()

    def before_reruns(self, replayer: MegatronReplayer) -> None:
        assert self._store is not None and self.iteration is not None
        if self._changed_before_step:
            replayer.leave_out_reduced()
        self.iteration.leave(self._store.fingerprint())

    def end_schedule(self) -> None:
        if self.iteration is not None:
            self.iteration.end_schedule()
        self.session.now.end_forward()
        if self._model is not None:
            self._model.end_call()

    # The optimizer

    def wrap_optimizer(self, optimizer: Any) -> Any:
        self._optimizer = optimizer
        if self._store is not None:
            self._store.step_by(optimizer)
        original = getattr(optimizer, "step", None)
        if original is None:
            return optimizer

        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            self.session.guarded(self._before_step)()
            result = original(*args, **kwargs)
            self.session.guarded(self._after_step)(result)
            return result

        step.ttrace_captures = self  # type: ignore[attr-defined]
        optimizer.step = step
        return optimizer

    def _before_step(self) -> None:
        if not self.course.captures:
            return
        assert self._store is not None and self.iteration is not None
        if not self.iteration.is_left(self._store.fingerprint):
            self._changed_before_step = True
            self.session.note(
                "notice",
                text=f"iteration {self.session.iteration}: gradients changed between the"
                " schedule's end and the optimizer's step: grad_reduced of reruns is not"
                " comparable with it",
            )
        self.course.record_reduced()
        self.course.step_begins(self._note_hyperparameters)

    def _note_hyperparameters(self) -> None:
        if self._model is not None and self._optimizer is not None:
            hyperparameters.note_step(self._model, self._optimizer)
            source_lines.note_caller(self.session, "step")

    def _after_step(self, result: Any) -> None:
        if not self.course.captures:
            return
        if isinstance(result, tuple) and result and result[0] is False:
            self.course.skipped(
                "the optimizer found gradients that are not finite and made no step"
            )
        if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
            self.course.norm(torch.as_tensor(result[1]).to(torch.float32))
        self.course.step_over()
        if self.session.iteration == self.settings.iterations[-1]:
            self.session.finish()

    # Running as a leg: one launch per leg

    def own_leg(self, model: Model) -> Leg:
        """The leg that this whole launch is, or the real one in its place."""
        name, full_precision = self.settings.leg, lambda: fp32.full_precision(model.wrapped)
        legs = LegFactory(self.session, lambda name: _launch_refusal(model, name), full_precision)
        leg = legs.make(name)
        if isinstance(leg, Leg):
            return leg
        self.session.note(
            "leg_skipped",
            leg=name,
            iteration=self.session.iteration,
            reason=leg.reason,
            expected=leg.expected,
        )
        return Leg("real")


def _launch_refusal(model: Model, name: str) -> Refusal | None:
    """Why a whole launch cannot be this leg."""
    leg = LegName.parse(name)
    expected = leg.fp32 and not fp32.is_low_precision(model.wrapped)
    if leg.isolated:
        reason = "an isolated leg needs the real call before it in the same launch"
        return Refusal(reason, expected)
    reason = fp32.refusal(model.wrapped) if leg.fp32 else None
    return None if reason is None else Refusal(reason, expected)


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
