"""The course of Megatron's training iterations: real call, reruns, optimizer step.

Errors of this tool end capture and nothing else; errors of the user's code pass through.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from ttrace.adapters import megatron_fp32
from ttrace.adapters.megatron_batch import DataItems, trace_losses
from ttrace.adapters.megatron_gradients import Gradients, gradient_of
from ttrace.adapters.megatron_model import Model
from ttrace.adapters.megatron_replayer import MegatronReplayer
from ttrace.capture import agreement, collective_calls, replay_data
from ttrace.capture.collectives import CollectiveLog
from ttrace.capture.graft import Graft
from ttrace.capture.legs import Leg, make_leg, running
from ttrace.capture.noise import Noise
from ttrace.capture.placed import Batch
from ttrace.capture.rerun import Reruns
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName, Settings

_FACTS = (str, int, float, bool, type(None))


class MegatronCapture:
    """One per process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = Session(settings)
        self._model: Model | None = None
        self._gradients: Gradients | None = None
        self._collectives: CollectiveLog | None = None
        self._graft: Graft | None = None
        self._optimizer: Any = None
        self._legs: tuple[str, ...] | None = None
        self._unread: set[int] = set()  # owners whose parameters this iteration has not read
        self._in_schedule = False
        self._fingerprint: Any = None
        self._changed_before_step = False

    # The schedule

    def wrap_schedule(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(schedule)
        def traced(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs.get("forward_only"):
                with collective_calls.unheard():
                    return schedule(*args, **kwargs)
            return self._training_call(schedule, kwargs)

        return traced

    def _training_call(self, schedule: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        session = self.session
        session.iteration += 1
        if session.iteration not in self.settings.iterations:
            self._leave()
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
            # The other ranks vote on their reruns now, and wait for this one.
            self.legs()
            agreement.all_agree(False)
        return result

    def _leave(self) -> None:
        """After the last captured iteration nothing of capture remains in the model."""
        if session_done(self.session, self.settings) and self._model is not None:
            if self.session.recording:
                self.session.finish()
            if self._collectives is not None:
                self._collectives.stop()
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
        model = Model(session, wrapped)
        topology = model.topology
        session.start(
            dist.get_rank(),
            dist.get_world_size(),
            list(topology.size.items()),
            list(topology.coordinate.values()),
            self._facts(model),
        )
        self._gradients = Gradients(model)
        self._collectives = CollectiveLog(
            session,
            model.hooks,
            lambda: ((entry.fqn, gradient_of(entry)) for entry in model.parameters()),
            stable=True,
        )
        if settings.graft is not None:
            self._graft = Graft(session)
        session.note("replayer", name="megatron")
        model.install(self._owner_called)
        model.write_notes()
        self._note_unsupported(model)
        return model

    def _facts(self, model: Model) -> dict[str, Any]:
        import megatron.core

        config = {
            name: value if isinstance(value, _FACTS) else str(value)
            for name, value in sorted(vars(model.config).items())
            if isinstance(value, (*_FACTS, torch.dtype))
        }
        return {
            "framework": "megatron-core",
            "version": megatron.core.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "sequence_parallel": model.topology.sequence_parallel,
            "virtual_stages": len(model.chunks),
            "config": config,
        }

    def _note_unsupported(self, model: Model) -> None:
        reasons = []
        if getattr(model.config, "num_moe_experts", None):
            reasons.append("mixture of experts: its modules are not observed")
        if any(c.wrapped.ddp_config.use_distributed_optimizer for c in model.chunks):
            reasons.append("distributed optimizer: reduced gradients are recorded by no rank")
        if getattr(model.config, "fp16", False):
            reasons.append("fp16: gradients are recorded with the loss scale in them")
        for reason in reasons:
            self.session.note("notice", text=reason)

    # Events inside the real call

    def _owner_called(self, owner: torch.nn.Module) -> None:
        """Parameters are read where the first forward uses them, after any gather."""
        if id(owner) in self._unread and self.session.leg == self.settings.leg:
            self._unread.discard(id(owner))
            self._read_parameters(owner, graft=True)

    def _read_parameters(self, owner: torch.nn.Module, graft: bool) -> None:
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
            if graft and self._graft is not None:
                self._graft.parameter(entry.fqn, entry.original, entry.rule.placements, iteration)

    def read_what_was_not_used(self) -> None:
        """Parameters that no module's forward asked for."""
        assert self._model is not None
        for entry in list(self._model.parameters()):
            if id(entry.owner) in self._unread:
                self._unread.discard(id(entry.owner))
                self._read_parameters(entry.owner, graft=False)

    def before_reduction(self, group: Any) -> None:
        if self._in_schedule and self._gradients is not None:
            self.session.guarded(self._gradients.before_reduction)(group)

    # Where collectives come from

    def reducing(self, group: Any = None) -> AbstractContextManager[None]:
        """Inside, gradients are reduced: those of a bucket group, or of whom is not known yet."""
        log, model = self._collectives, self._model
        if log is None or model is None or self.session.over:
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
            model.note_not_called()
        if self._graft is not None:
            self._graft.report(self.session.iteration)
            if self._graft.weights and self._optimizer is not None:
                # Masters follow the grafted working copies.
                self._optimizer.reload_model_params()

    def legs(self) -> tuple[str, ...]:
        """As rank 0 was asked. The first call communicates: after the real call only, so that a
        rank whose capture failed at start meets the others at the same place."""
        if self._legs is None:
            self._legs = agreement.same_everywhere(self.settings.legs)
        return self._legs

    def rerun(self, reruns: Reruns, replayer: MegatronReplayer) -> None:
        assert self._gradients is not None
        replayer.records_reduced = not self._changed_before_step
        self._fingerprint = self._gradients.fingerprint()
        reruns.run(self.legs())

    def end_schedule(self) -> None:
        self._in_schedule = False
        self.session.moment = None
        if self._model is not None:
            self._model.batch = None

    # The optimizer

    def wrap_optimizer(self, optimizer: Any) -> Any:
        self._optimizer = optimizer
        original = optimizer.step

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
        return nullcontext() if log is None else log.inside("optimizer")

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

    def _after_step(self, result: Any) -> None:
        if not self._captured():
            return
        session = self.session
        if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
            norm = torch.as_tensor(result[1]).detach().to(torch.float32).reshape(())
            session.record(
                "grad_norm", "grad_norm", "", norm, iteration=session.iteration, pass_="optimizer"
            )
        if self._collectives is not None:
            self._collectives.end()
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
                "leg_skipped", leg=name, iteration=self.session.iteration, reason=reason
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
        self._batch = self._make_batch(arguments)
        self._model.begin_call(self._batch)
        items = DataItems(self._model, self._batch, capture.session.iteration, capture._graft)
        keep = bool(capture.settings.legs)
        self._arguments = {
            **arguments,
            "data_iterator": replay_data.wrap(arguments["data_iterator"], items.inspect, keep),
            "forward_step_func": trace_losses(self._model, arguments["forward_step_func"]),
        }
        self._reruns: Reruns | None = None
        self._replayer = MegatronReplayer(
            self._model, capture._gradients, schedule, self._arguments, self._batch
        )
        self._own_leg = capture.own_leg(self._model)

    def _make_batch(self, arguments: dict[str, Any]) -> Batch:
        dp = self._model.topology.size["dp"]
        calls, rows = arguments["num_microbatches"], arguments["micro_batch_size"]
        scale = self._model.chunks[0].rules.gradient_scale()
        return Batch(calls * rows * dp, rows, calls, scale)

    def run(self) -> Any:
        capture, session = self._capture, self._capture.session
        legs = capture.settings.legs
        try:
            if legs:
                session.guarded(self._prepare_reruns)()
            with running(self._own_leg) if self._own_leg else nullcontext():
                self._model.hooks.rewrite = self._own_leg.rewrite if self._own_leg else None
                with capture.finalizing(self._model):
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
        if self._reruns is None:
            capture.legs()
            agreement.all_agree(False)
            return
        try:
            capture.rerun(self._reruns, self._replayer)
        except Exception as error:
            capture.session.stop(error)


def session_done(session: Session, settings: Settings) -> bool:
    return session.over or session.iteration > settings.iterations[-1]
