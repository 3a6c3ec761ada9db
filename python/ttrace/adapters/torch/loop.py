"""Capture of a plain torch loop: one process, DistributedDataParallel, DTensor parallel modules.

`attach` does nothing at all unless the run is captured. An iteration is what lies between two steps
of the optimizer, or of all optimizers if there are several; a micro-batch is what the loop calls
backward for. What a plain loop cannot do is be run again by somebody else, so every leg is a launch
of its own.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch import fed_rows
from ttrace.adapters.torch.backward import LossBackward
from ttrace.adapters.torch.checkpoint import Checkpoints
from ttrace.adapters.torch.clipping import Clipping
from ttrace.adapters.torch.comm_hook import note_comm_hook
from ttrace.adapters.torch.compiled import (
    AroundCall,
    anything_compiled,
    outside,
    watch,
    wrappers_around,
)
from ttrace.adapters.torch.cut_rows import CutRows
from ttrace.adapters.torch.data import Data
from ttrace.adapters.torch.deferred_session import DeferredSession
from ttrace.adapters.torch.hooks import (
    DTensorIsolation,
    DTensorNoise,
    LoopHooks,
)
from ttrace.adapters.torch.loss_scale import LossScale, parameters_of
from ttrace.adapters.torch.losses import Losses
from ttrace.adapters.torch.micro_batches import MicroBatches
from ttrace.adapters.torch.patches import Patches
from ttrace.adapters.torch.placement import Provenance
from ttrace.adapters.torch.private_names import TORCH
from ttrace.adapters.torch.step_hooks import StepHooks
from ttrace.adapters.torch.store import Store
from ttrace.adapters.torch.targets import watch as watch_targets
from ttrace.adapters.torch.token_sums import token_sums
from ttrace.adapters.torch.topology import (
    DTensor,
    Topology,
    Unsupported,
    canonical_name,
    inside,
    rows_cut,
    wrappers,
)
from ttrace.capture import (
    collective_calls,
    hyperparameters,
    nested,
    process_messages,
    source_lines,
)
from ttrace.capture.course import Course
from ttrace.capture.dropout import Dropout
from ttrace.capture.graft import Graft
from ttrace.capture.isolation_source import IsolationSources
from ttrace.capture.low_precision import quantised
from ttrace.capture.module_hooks import Arguments
from ttrace.capture.modules_beside import beside
from ttrace.capture.nested import named_tensors
from ttrace.capture.placed import Moment, Scale
from ttrace.capture.private_names import looked_up, missing
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.recorded_values import RecordedValues
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.settings import LegName, Settings

_LOW_PRECISION = (torch.float16, torch.bfloat16)
_SEVERAL_EVALUATIONS = (
    "a step of the optimizer calls its closure several times: only the first is recorded"
)


class LoopCapture:
    """One per process. Nothing but a few hooks that do nothing until the first captured forward:
    the model may still be wrapped in DistributedDataParallel after `attach`."""

    def __init__(self, settings: Settings, model: nn.Module, optimizers: Sequence[Any]) -> None:
        self.session = session = DeferredSession(settings)
        session.iteration = 0
        self._settings = settings
        self._optimizers = list(optimizers)
        self._others: list[str] = []  # classes of models that were attached after this one
        self._stepped: set[int] = set()  # optimizers, in this iteration
        self._noted: set[int] = set()  # those whose hyperparameters were
        self._patches = Patches()
        self._hooks: LoopHooks | None = None
        self._store: Store | None = None
        self._provenance: Provenance | None = None
        self._source: RecordedValues | None = None  # of an isolated leg
        self._cut_rows: CutRows | None = None  # under DistributedDataParallel
        self._draws = RandomDraws(session, self._innermost)
        dropout = Dropout(session, self._innermost, self._seeded_alike, self._draws)
        self._course = Course(session, dropout)
        self._calls_inside: int | None = None  # of the model, within `one_forward`
        self._evaluated = False  # a forward with gradients, outside of training mode
        self._had_forward = False  # the last iteration, of the model
        self._steps_again = False  # the step that runs, without a forward of its own
        self._evaluates_again = False  # the step that runs, after its gradients were given out
        chain = wrappers(model)
        if len(chain) == 1:
            chain = wrappers_around(model)
        self._root = chain[-1]
        self._batch_norms = {
            canonical_name(name): module
            for name, module in self._root.named_modules()
            if isinstance(module, _BatchNorm)
        }
        self._ddp = next((m for m in chain if isinstance(m, DistributedDataParallel)), None)
        self._arguments = Arguments.of(inside(self._root))
        guarded = session.guarded
        self._enter = guarded(self._enter_root)
        self._declare = guarded(self._placement_declared)
        self._leave = guarded(self._leave_root)
        self._skip_forward = guarded(self._forward_before_capture)
        self._micro_batches = MicroBatches(session)
        self._data = Data(
            session, self._patches, guarded(self._ensure_started), self._micro_batches.close
        )
        self._targets = guarded(self._target)
        watch_targets(self._patches, self._targets)
        self._backward = LossBackward(session, self._patches, self._backward_over)
        self._losses = Losses(session, self._patches, lambda: self._micro_batches.last)
        self._clipping = Clipping(
            session, self._patches, self._gradients_clipped, self._clipped, self._course.norm
        )
        self._scaler = LossScale(
            session, self._patches, self._optimizers, self._loss_scaled, self._before_step,
            self._step_skipped,
        )  # fmt: skip
        self._checkpoints = Checkpoints(session, self._patches)
        self._patches.wrap_result(DistributedDataParallel, "__init__", self._ddp_made)
        watch(self._patches, guarded(self._compiled))
        self._patches.wrap_static(DTensor, "from_local", self._dtensor_made)
        self._outside = outside(chain)
        self._around = AroundCall(self._outside, self._root_called, self._root_left, first=False)
        self._step_hooks = StepHooks(
            self._optimizers,
            guarded(self._before_step),
            guarded(self._after_step),
            guarded(self._before_closure),
            guarded(self._before_closure_again),
        )

    def is_of(self, model: nn.Module) -> bool:
        """Whether it is this model that is captured."""
        return not self.session.over and wrappers(model)[-1] is self._root

    def refuse_another(self, name: str) -> None:
        """The loop has attached a second model, of a class of this name: it is not captured."""
        self._others.append(name)
        self._name_others()

    def _name_others(self) -> None:
        for name in self._others if self.session.started else ():
            self.session.unsupported(
                f"a second model ({name})",
                f"only the first that was attached ({type(self._root).__name__}) is captured",
                "attach one module that holds both, or compare each in runs of its own",
            )

    def _innermost(self) -> str | None:
        return None if self._hooks is None else self._hooks.innermost

    def _seeded_alike(self) -> dict[str, Any]:
        """accelerate and transformers seed all processes alike unless they are told otherwise."""
        known = [name for name in ("accelerate", "transformers") if name in sys.modules]
        dims = [self.session.topology.dp_name]
        if dims == [None] or not known:
            return {}
        return {"dims": dims, "why": f"{' and '.join(known)} seed all processes alike"}

    # Start

    def _ddp_made(self, wrapper: Any, result: Any) -> Any:
        """Finds a wrapper that is put around the model after `attach`."""
        if wrappers(getattr(wrapper, "module", None))[-1] is self._root:
            self._ddp = wrapper
        return result

    def _target(self, target: torch.Tensor) -> torch.Tensor | None:
        """Outside of the model, of what it returned."""
        if self.session.moment is not None or self._micro_batches.last is None:
            return None
        return self._data.target(target)

    def _dtensor_made(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and self.session.moment is not None:
            self._declare(*args, **kwargs)
        return original(*args, **kwargs)

    def _placement_declared(
        self, local: Any = None, device_mesh: Any = None, placements: Any = None, **_: Any
    ) -> None:
        """The model says of one of its inputs how it lies on the device mesh."""
        session, moment = self.session, self.session.moment
        if self._provenance is None or moment is None:
            return
        words = self._provenance.declared(local, device_mesh, placements)
        pieces, _ = rows_cut(words, 0, session.topology) if words else (1, 0)
        batch = moment.batch
        if pieces > 1 and local.shape[0] == batch.micro_batch_size:
            # What the loop gave to the model is this rank's part of the micro-batch.
            moment.batch = replace(
                batch,
                micro_batch_size=batch.micro_batch_size * pieces,
                global_rows=batch.global_rows * pieces,
            )

    def _compiled(self, module: nn.Module) -> None:
        """The model, or a part of it, was compiled after `attach`: its own hooks run no more."""
        if wrappers(module)[-1] is self._root:
            self._around.remove()
            self._outside = module
            self._around = AroundCall(module, self._root_called, self._root_left, first=False)
        if self._hooks is not None:
            self._hooks.install_all(self._root, self._outside)

    def _ensure_started(self) -> None:
        """At the first thing that is captured: a data item, or a forward."""
        if not self.session.started:
            self._start()

    def _start(self) -> None:
        session, settings = self.session, self._settings
        rank, world = 0, 1
        if dist.is_available() and dist.is_initialized():
            rank, world = dist.get_rank(), dist.get_world_size()
            session.rank = rank  # before anything can fail: messages name it
        facts = {
            "framework": "torch",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "model": type(self._root).__name__,
            "ddp": self._ddp is not None,
            "private_names": looked_up(TORCH),
        }
        try:
            topology = Topology.of(self._root, self._ddp)
        except Unsupported as refusal:
            session.start(rank, world, [("ranks", world)], [rank], facts)
            session.unsupported(refusal.what, refusal.reason, refusal.way_out)
            raise
        session.topology = topology
        session.start(
            topology.rank,
            topology.world_size,
            list(topology.size.items()),
            list(topology.coordinate.values()),
            facts,
        )
        session.note("replayer", name="none")
        # Where a loop divides, before the reduction or after it, is its own affair.
        session.note("loss_unit", known=False)
        for text in missing(TORCH):
            session.note("notice", text=text)
        named = {canonical_name(n): m for n, m in self._root.named_modules()}
        session.note("modules", classes={n: type(m).__name__ for n, m in named.items()})
        source_lines.note_modules(session, named.items())
        session.note("token_sums", **token_sums(self._root))
        self._name_quantised()
        self._name_others()
        graft = self._data.graft = None if settings.graft is None else Graft(session)
        self._provenance = Provenance(topology)
        self._data.lies = self._provenance.of_argument
        self._hooks = LoopHooks(session, self._provenance, self._draws, self._backward)
        self._hooks.install_all(self._root, self._outside)
        self._store = Store(session, self._root, self._optimizers, self._micro_batches.close)
        self._scaler.reached = self._backward_reached
        collective_calls.patch_late()  # nothing to do where the launcher has been
        self._course.open(self._hooks, self._store, graft, stable=False)
        if self._ddp is not None and topology.dp_size > 1:
            ranks = dist.get_process_group_ranks(self._ddp.process_group)
            self._cut_rows = CutRows(session, ranks)
            assert self._course.collectives is not None
            self._course.collectives.in_forward = self._cut_rows.heard
        if self._ddp is not None:
            reason = "DistributedDataParallel reduces gradients outside of Python"
            session.note("collectives_not_seen", phase="reduction", reason=reason)
        self._choose_leg()

    def _name_quantised(self) -> None:
        modules = ((canonical_name(name), module) for name, module in self._root.named_modules())
        for found in quantised(modules):
            self.session.unsupported(
                found.what,
                "its values have a few bits and scales of their own, each rank's from its own rows:"
                " two honest runs round them otherwise than the recorded dtypes tell",
                "compare both runs with these modules in bf16, or as they are before conversion",
            )

    def _choose_leg(self) -> None:
        """Skips what asks for another precision, runs noise if this launch is a noise leg."""
        session, settings = self.session, self._settings
        assert self._hooks is not None and self._store is not None
        low = any(p.dtype in _LOW_PRECISION for p in self._root.parameters())
        low = low or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        reason = (
            "a plain torch loop cannot be run in fp32 from outside"
            if low
            else "the run is fp32 already"
        )
        own = LegName.parse(settings.leg)
        for leg in dict.fromkeys((*settings.legs, settings.leg)):
            if LegName.parse(leg).fp32:
                self._skip(leg, reason, expected=not low)
        if own.fp32:
            self._end()
        elif own.isolated:
            self._isolate(own)
        elif own.noise:
            self._rewrite(DTensorNoise(session, own.noise))

    def _isolate(self, leg: LegName) -> None:
        session = self.session
        sources = IsolationSources(session)
        reason = sources.refusal(leg.text)
        if reason is not None:
            self._skip(leg.text, reason, expected=False)
            self._end()
            return
        noise = DTensorNoise(session, leg.noise) if leg.noise else None
        self._source = sources.of(leg.text)
        self._rewrite(DTensorIsolation(session, self._source, leg.source, noise))

    def _rewrite(self, rewrite: Rewrite) -> None:
        assert self._hooks is not None and self._store is not None
        self._hooks.rewrite = self._store.rewrite = rewrite

    def _skip(self, leg: str, reason: str, expected: bool) -> None:
        for iteration in self._settings.iterations:
            self.session.note(
                "leg_skipped", leg=leg, iteration=iteration, reason=reason, expected=expected
            )

    # Forward

    @contextmanager
    def one_forward(self) -> Iterator[None]:
        """Inside, all calls of the model are parts of its first."""
        self._calls_inside = 0
        try:
            yield
        finally:
            self._calls_inside = None
            self.session.moment = None

    def _root_called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._calls_inside is not None:
            self._calls_inside += 1
            if self._calls_inside > 1:
                return None
        session = self.session
        session.moment = None
        if not torch.is_grad_enabled() or session.over or self._evaluates_again:
            return None
        if not module.training:  # evaluation is no part of an iteration
            self._evaluated = True
            return None
        if session.due:
            return self._enter(module, args, kwargs)
        if session.iteration + 1 == self._settings.iterations[0]:
            self._skip_forward(args, kwargs)
        return None

    def _forward_before_capture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The iteration before the first captured one uses items that were read ahead."""
        self._data.forward(True, 0, 0, self._arguments.bound(args, kwargs))

    def _enter_root(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        session = self.session
        starts_here = not session.started
        self._ensure_started()
        if session.over:
            return None
        hooks, provenance, store = self._hooks, self._provenance, self._store
        assert hooks is not None and provenance is not None and store is not None
        if (self._ddp is not None) != (session.topology.dp_name is not None):
            raise RuntimeError("the model was wrapped after the loop had read its first data")
        micro_batches = self._micro_batches
        if micro_batches.calls == 0:
            self._step_hooks.come_last()
            course = self._course
            course.begin()
            course.read(store.parameters(course.parameters_are()[0]))
            store.record_buffers(course.graft)
        arguments = self._arguments.bound(args, kwargs)
        tensors = [t for name, v in arguments.items() for _, t in named_tensors(v, name)]
        rows = self._rows_of(arguments, tensors)
        new = micro_batches.next_is_new
        self._name_batch_norm(rows)
        if self._cut_rows is not None:
            self._cut_rows.begin(rows, arguments, self._shape_in_reference())
        moment = micro_batches.forward(rows, self._rows_of_source())
        provenance.begin(tensors, session.lies)
        replaced = self._data.forward(new, micro_batches.count - 1, rows, arguments)
        changed = None
        if replaced:
            changed = args, kwargs = self._arguments.rebound(args, kwargs, replaced)
            arguments = self._arguments.bound(args, kwargs)
        self._note_fed(moment, arguments)
        session.moment = moment
        hooks.begin_forward()
        if starts_here:
            hooks.before_root(module, args, kwargs)
        return changed

    def _note_fed(self, moment: Moment, arguments: dict[str, Any]) -> None:
        """What this forward is given, row by row, and where the reference has these rows."""
        session = self.session
        if session.topology.device_mesh is not None:
            return  # parts of rows may lie on other ranks
        tensors = fed_rows.fed(arguments)
        before = {fqn: count for (fqn, pass_), count in moment.calls.items() if pass_ == "forward"}
        fed_rows.note(
            session,
            tensors,
            fed="",
            iteration=moment.iteration,
            micro_batch=moment.micro_batch,
            call=moment.call,
            rows=moment.batch.micro_batch_size,
            calls=before if moment.call > 0 else {},
        )
        placed = self._data.place(moment.iteration, moment.call, tensors)
        if placed is not None and placed.found:
            moment.placed = placed

    def _shape_in_reference(self) -> Callable[[str], list[int]] | None:
        graft, iteration = self._course.graft, self.session.iteration
        return None if graft is None else lambda arg: graft.shape_of_input(arg, iteration)

    def _name_batch_norm(self, rows: int) -> None:
        """Its statistics are those of the rows that it sees: another function of the batch where
        these are fewer."""
        session = self.session
        for fqn, module in self._batch_norms.items():
            if not module.training and not session.said(f"evaluation mode of {fqn}"):
                session.note("attribute", fqn=fqn, name="training", value=False, expected=True)
        # A class of its own may average over whatever it likes; a frozen one averages over nothing.
        kinds = {
            type(module).__name__
            for module in self._batch_norms.values()
            if type(module).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward)
            and (module.training or module.running_mean is None)
        }
        if not kinds or session.said("batch norm"):
            return
        if kinds == {"SyncBatchNorm"}:
            rows *= session.topology.dp_size
        session.note(
            "computation",
            name="rows in the statistics of batch normalisation",
            value=rows,
            option="torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), and micro-batches of the"
            " same number of rows over all ranks",
        )

    def _rows_of(self, arguments: dict[str, Any], tensors: list[torch.Tensor]) -> int:
        """Rows of one forward."""
        session = self.session
        first = next((v for v in arguments.values() if torch.is_tensor(v) or nested.named(v)), None)
        if isinstance(first, list | tuple):
            return len(first)
        rows = next((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), None)
        if rows is None:
            what = "a model without a tensor among its inputs"
            reason = "its forward takes no tensor: micro-batches have no rows"
            session.unsupported(what, reason, "give the model its batch as an argument")
            raise RuntimeError(f"{what}: {reason}")
        return rows

    def _rows_of_source(self) -> int:
        """The global batch of the run that values are taken from, by the model's own inputs."""
        if self._source is None:
            return 0
        for name in self._arguments.names:
            where = ("real", "", "input", self.session.iteration, 0, name, "forward")
            shape = self._source.global_shape(where)
            if shape:
                return shape[0]
        return 0

    def _root_left(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._calls_inside is not None:
            self._calls_inside -= 1
            if self._calls_inside > 0:
                return
        self._leave(output)

    def _leave_root(self, output: Any) -> None:
        self.session.moment = None
        if self._cut_rows is not None:
            self._cut_rows.end(output)
        scalars = (value for _, value in nested.outputs(output) if value.dim() == 0)
        if any(value.requires_grad for value in scalars):
            self._data.loss_is_made_inside()

    # The optimizer's step

    def _loss_scaled(self, scale: Scale) -> None:
        """Gradients will be 1 / scale times what they mean."""
        self._micro_batches.loss_scaled(*scale)
        if self._store is not None:
            self._store.loss_scale = scale

    def _gradients_complete(self, optimizer: Any = None) -> Store | None:
        """The gradients that it steps are complete. None: those of all."""
        several = optimizer is not None and len(self._optimizers) > 1
        return self._give_out(parameters_of(optimizer) if several else None, optimizer)

    def _gradients_clipped(self, of: Iterable[torch.Tensor] | None) -> Store | None:
        """Complete, or so it seems, are those that are clipped."""
        return self._give_out(of if len(self._optimizers) > 1 else None, None)

    def _give_out(self, of: Iterable[torch.Tensor] | None, optimizer: Any) -> Store | None:
        if not self.session.due or self._store is None:
            return None
        self._store.select(of, self._scaler.unscaled(optimizer))
        if self._ddp is not None and not self.session.said("comm hook"):
            note_comm_hook(self.session, self._ddp)
        self._course.backward_done()
        self._course.record_reduced()
        return self._store

    def _backward_over(self) -> None:
        self._clipping.backward_over()
        if self.session.due and self._store is not None:
            self._store.backward_over()

    def _clipped(self) -> None:
        if self._store is not None:
            self._store.changed_knowingly()

    def _before_closure(self, optimizer: Any) -> None:
        """Forwards and backwards follow, within the step."""
        self._evaluates_again = False
        if id(optimizer) in self._stepped:
            self._step_over()  # the others take no step in this iteration

    def _before_closure_again(self, optimizer: Any) -> None:
        """A line search: what it evaluates is at other weights, and leads to what the step does, of
        which no gradient that was recorded says anything."""
        self._evaluates_again = True
        self._micro_batches.last = None  # a loss or a gradient now is of no forward that was seen
        if self.session.due and not self.session.said(_SEVERAL_EVALUATIONS):
            self.session.note("notice", text=_SEVERAL_EVALUATIONS)

    def _before_step(self, optimizer: Any) -> None:
        self._evaluates_again = False
        self._steps_again = self._follows_no_forward
        if self._steps_again:
            self._note_second_step()
            return
        if id(optimizer) in self._stepped:
            self._step_over()
        self._gradients_complete(optimizer)
        self._course.step_begins(lambda: self._note_hyperparameters(optimizer))
        self._scaler.stepping = True

    def _note_hyperparameters(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) in self._noted:
            return  # a scaler's step may come before the optimizer's own
        self._noted.add(id(optimizer))
        source_lines.note_caller(self.session, "step")
        names = {id(p): canonical_name(fqn) for fqn, p in self._root.named_parameters()}
        of_step: dict[str, Any] = self._clipping.of_step()
        if self._store is not None and self._store.changed_early:
            of_step[hyperparameters.CHANGED_EARLY] = True
        changed = self._store is not None and self._store.changed_otherwise()
        if self._store is not None and self._store.given_out_early:
            changed = of_step[hyperparameters.INCOMPLETE] = True
        if changed or not self._clipping.understood:
            of_step[hyperparameters.UNKNOWN_CHANGE] = True
        hyperparameters.note_step(
            self.session,
            self.session.iteration,
            [(optimizer, of_step)],
            lambda parameter: names.get(id(parameter)),
        )
        none = [names.get(id(p)) for p in parameters_of(optimizer) if p.grad is None]
        hyperparameters.note_no_gradient(
            self.session, self.session.iteration, [name for name in none if name is not None]
        )

    @property
    def _follows_no_forward(self) -> bool:
        """Whether a step now would belong to no iteration: the last one is over, and its forwards
        were seen."""
        return self._had_forward and self._micro_batches.calls == 0 and not self._evaluated

    def _backward_reached(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether gradients that are cleared now are of an iteration. The backward of another model
        may reach these parameters too, as a generator's does those of who judges it: before the
        first forward of an iteration what it left is no part of one, and goes with the clearing."""
        assert self._store is not None
        if not self._follows_no_forward:
            return self._store.arrived(parameters)
        self._store.begin()
        return False

    def _note_second_step(self) -> None:
        """What it does is found when the next iteration begins."""
        session = self.session
        if session.due and session.started:
            session.note("second_step", iteration=session.iteration - 1)

    def _after_step(self, optimizer: Any) -> None:
        self._evaluates_again = False
        if self._steps_again:
            self._steps_again = False
            if self._store is not None:
                self._store.begin()  # what backward has made for it is no part of the next one
            return
        self._stepped.add(id(optimizer))
        if self._store is not None:
            self._store.step_over(parameters_of(optimizer))
        self._scaler.stepping = False
        self._scaler.stepped(optimizer)
        if len(self._stepped) == len(self._optimizers):
            self._step_over()

    def _step_skipped(self, optimizer: Any, cleared: bool) -> None:
        """The loop came to the end of an iteration, and the optimizer did nothing."""
        if self.session.due and self.session.recording:
            why = "were cleared without a step" if cleared else "overflowed"
            self._course.skipped(f"the gradients {why}", cleared)
        self._after_step(optimizer)

    def _step_over(self) -> None:
        session, settings = self.session, self._settings
        self._had_forward = self._micro_batches.calls > 0
        if session.due and self._evaluated and not self._had_forward:
            self._say_it_evaluates()
        self._evaluated = False
        if session.due and session.started:
            self._gradients_complete()
            self._end_iteration()
        if self._store is not None:
            self._store.begin()
        session.moment = None  # a forward may step, and return to its caller then
        session.iteration += 1
        self._stepped.clear()
        self._noted.clear()
        self._micro_batches.begin_iteration()
        session.backward_moment = None
        self._data.begin_iteration()
        self._scaler.begin_iteration()
        self._clipping.begin_iteration()
        if session.iteration > settings.iterations[-1]:
            self._end()

    def _say_it_evaluates(self) -> None:
        """A step that no forward in training mode came before, but others with gradients."""
        session = self.session
        what, way_out = "training in evaluation mode", "call model.train() before the loop"
        reason = "the optimizer steps after forwards of a model that is in evaluation mode (eval())"
        if session.started:
            session.unsupported(what, reason, way_out)
        else:
            text = f"{what} is not supported: {reason}; {way_out}"
            process_messages.leave(session.settings.out, "refused", text=text)

    def _end_iteration(self) -> None:
        session = self.session
        self._data.end_iteration()
        self._name_uncalled()
        self._name_modules_beside()
        self._draws.end_iteration()
        micro_batches = self._micro_batches.count * session.topology.dp_size
        session.release(micro_batches)
        self._course.grafted()
        self._course.step_over()

    def _name_modules_beside(self) -> None:
        """Once, when the loop has made what it makes: averages, teachers."""
        if self.session.said("modules beside"):
            return
        around = [*self._outside.modules(), *self._root.modules()]
        found = beside(around, self._root)
        classes = sorted({type(wrappers(module)[-1]).__name__ for module in found})
        if found:
            self.session.note("modules_beside", count=len(found), classes=classes)

    def _name_uncalled(self) -> None:
        """A module that is part of the model and was not called may be in compiled code, which
        runs no hooks."""
        if self._hooks is None or not anything_compiled():
            return
        for fqn in self._hooks.not_called():
            if not self.session.said("compiled", fqn):
                reason = "not called from Python: unused, or inside of compiled code"
                self.session.note("compiled", fqn=fqn, reason=reason)

    def _end(self) -> None:
        """Nothing of capture remains in the model or in torch."""
        self._course.close()
        self._patches.undo()
        self._around.remove()
        self._step_hooks.stop()
        for part in (self._hooks, self._store):
            if part is not None:
                part.remove()
        self._hooks = self._store = self._provenance = None
