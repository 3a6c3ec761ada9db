"""Calls of the model: which are forwards of an iteration, of which rows, and what they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch import model_notes
from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.attached_root import AttachedRoot
from ttrace.adapters.torch.compiled import AroundCall, watch
from ttrace.adapters.torch.data import Data
from ttrace.adapters.torch.dtensors import DTensor, rows_cut
from ttrace.adapters.torch.forwards_seen import SeenForward
from ttrace.adapters.torch.given_rows import GivenRows
from ttrace.adapters.torch.instruments import Instrumentation, Instruments
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.repeat.repetition import Repetition
from ttrace.adapters.torch.targets import watch as watch_targets
from ttrace.capture import nested
from ttrace.capture.course import Course
from ttrace.capture.nested import named_tensors
from ttrace.capture.patches import Patches

_NO_ROWS = (
    "a model without a tensor among its inputs",
    "its forward takes no tensor: micro-batches have no rows",
    "give the model its batch as an argument",
)


class Forwards:
    """Of one model."""

    def __init__(
        self,
        session: LoopSession,
        model: AttachedModel,
        patches: Patches,
        instrumentation: Instrumentation,
        course: Course,
        data: Data,
        repetition: Repetition,
        first: Callable[[], None],
    ) -> None:
        """`first()` is called at the first forward of an iteration."""
        self._session = session
        self._model = model
        self._instrumentation = instrumentation
        self._course = course
        self._data = data
        self._repetition = repetition
        self._first = first
        self._given = GivenRows(session, model, data, repetition)
        self._calls_inside: int | None = None  # of the model, within `one_forward`
        guarded = session.guarded
        self._enter = guarded(self._enter_model)
        self._enter_again = guarded(self._enter_in_leg)
        self._leave = guarded(self._leave_model)
        self._declare = guarded(self._placement_declared)
        self._before_capture = guarded(self._forward_before_capture)
        watch_targets(patches, guarded(self._target))
        watch(patches, guarded(self._compiled))
        patches.wrap_static(DTensor, "from_local", self._dtensor_made)
        self._around = self._around_calls()

    def remove(self) -> None:
        for around in self._around:
            around.remove()

    @contextmanager
    def one_forward(self) -> Iterator[None]:
        """Inside, all calls of the model are parts of its first."""
        self._calls_inside = 0
        try:
            yield
        finally:
            self._calls_inside = None
            self._session.now.end_forward()

    def _around_calls(self) -> list[AroundCall]:
        outside = self._model.outside
        return [AroundCall(m, self._called, self._returned, first=False) for m in outside]

    def _compiled(self, module: nn.Module) -> None:
        """The model, or a part of it, was compiled after `attach`: its own hooks run no more."""
        if self._model.compiled_as(module):
            self.remove()
            self._around = self._around_calls()
            self._repetition.watch_model()
        instruments = self._instrumentation.current
        if instruments is not None:
            instruments.hooks.install_all(self._model)

    # A call

    def _called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._calls_inside is not None:
            self._calls_inside += 1
            if self._calls_inside > 1:
                return None
        session = self._session
        session.now.end_forward()  # one that an exception left unfinished
        root = self._model.root_in(module)
        if root is None or session.over or session.now.steps.evaluates_again:
            return None
        if not self._model.is_of_training(root):
            if torch.is_grad_enabled() and not module.training:
                session.now.evaluate()
            return None
        if not session.now.is_real:
            return self._enter_again(root, args, kwargs)
        if session.due:
            return self._enter(root, module, args, kwargs)
        if session.iteration + 1 == session.settings.iterations[0]:
            self._before_capture(root, args, kwargs)
        return None

    def _forward_before_capture(
        self, root: AttachedRoot, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The iteration before the first captured one uses items that were read ahead."""
        self._data.forward(True, 0, 0, root.arguments.bound(args, kwargs))

    def _enter_model(
        self,
        root: AttachedRoot,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        session, names = self._session, root.arguments
        starts_here = not session.started
        instruments = self._instrumentation.ensure_started()
        if instruments is None:
            return None
        if bool(self._model.ddps) != session.topology.wrapped:
            raise RuntimeError(
                "the model was wrapped after the loop had read its first data; wrap it before"
            )
        iteration = session.now
        micro_batches = iteration.micro_batches
        if micro_batches.calls == 0:
            self._begin_iteration(instruments)
        instruments.store.watch()
        arguments = names.bound(args, kwargs)
        tensors = [t for name, v in arguments.items() for _, t in named_tensors(v, name)]
        rows = self._rows_of(arguments, tensors)
        new, place = micro_batches.next_is_new, micro_batches.place
        model_notes.note_batch_norm(session, self._model, rows)
        if instruments.cut_rows is not None:
            instruments.cut_rows.begin(rows, arguments, self._shape_in_reference(root))
        rows_of_source = self._rows_of_source(root, instruments)
        moment = micro_batches.forward(session.topology, rows, rows_of_source, root)
        iteration.give_arguments(session.topology, tensors)
        own = self._given.own(arguments)
        of_root = moment if root.name else None
        replaced = self._data.forward(new, micro_batches.count - 1, rows, own, of_root)
        changed = None
        if replaced:
            changed = args, kwargs = names.rebound(args, kwargs, replaced)
            arguments = names.bound(args, kwargs)
        self._given.note(root, moment, arguments)
        if self._repetition.wanted:
            iteration.forwards.append(SeenForward(rows, new, place, replaced, moment.placed))
        iteration.begin_forward(moment)
        instruments.hooks.begin_forward()
        if starts_here:
            instruments.hooks.before_root(module, args, kwargs)
        return changed

    def _enter_in_leg(
        self, root: AttachedRoot, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The same forward runs again, with what it was given."""
        session, names = self._session, root.arguments
        iteration, instruments = session.now, self._instrumentation.current
        if instruments is None:
            return None
        micro_batches = iteration.micro_batches
        seen = iteration.next_seen()
        micro_batches.again(seen.begins, seen.place)
        rows_of_source = self._rows_of_source(root, instruments)
        moment = micro_batches.forward(session.topology, seen.rows, rows_of_source, root)
        if seen.placed is not None:
            moment.place_rows(seen.placed)
        replaced = {name: value.clone() for name, value in seen.replaced.items()}
        changed = names.rebound(args, kwargs, replaced) if replaced else None
        arguments = names.bound(*(changed or (args, kwargs)))
        tensors = [t for name, v in arguments.items() for _, t in named_tensors(v, name)]
        iteration.give_arguments(session.topology, tensors)
        iteration.begin_forward(moment)
        instruments.hooks.begin_forward()
        return changed

    def _begin_iteration(self, instruments: Instruments) -> None:
        course = self._course
        self._first()
        course.begin()
        course.read(instruments.store.parameters(course.parameters_are()[0]))
        course.use(instruments.store.parameters_used())
        instruments.store.record_buffers(course.graft)
        self._repetition.begin()

    def _returned(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._calls_inside is not None:
            self._calls_inside -= 1
            if self._calls_inside > 0:
                return
        self._leave(output)

    def _leave_model(self, output: Any) -> None:
        in_forward = self._session.now.moment is not None
        self._session.now.end_forward()
        instruments = self._instrumentation.current
        if not self._session.now.is_real:
            return
        if instruments is not None and instruments.cut_rows is not None:
            instruments.cut_rows.end(output)
        self._given.made(output, in_forward)
        scalars = (value for _, value in nested.outputs(output) if value.dim() == 0)
        if any(value.requires_grad for value in scalars):
            self._data.loss_is_made_inside()

    # What it is given

    def _rows_of(self, arguments: dict[str, Any], tensors: list[torch.Tensor]) -> int:
        rows = self._model.rows_of(arguments, tensors)
        if rows is None:
            what, reason, way_out = _NO_ROWS
            self._session.unsupported(what, reason, way_out)
            raise RuntimeError(f"{what}: {reason}")
        return rows

    def _rows_of_source(self, root: AttachedRoot, instruments: Instruments) -> int:
        """The global batch of the run that values are taken from, by the model's own inputs."""
        if instruments.source is None:
            return 0
        for name in root.arguments.names:
            where = ("real", root.name, "input", self._session.iteration, 0, name, "forward")
            shape = instruments.source.global_shape(where)
            if shape:
                return shape[0]
        return 0

    def _shape_in_reference(self, root: AttachedRoot) -> Callable[[str], list[int]] | None:
        graft, iteration = self._course.graft, self._session.iteration
        if graft is None:
            return None
        return lambda arg: graft.shape_of_input(root.name, arg, iteration)

    def _dtensor_made(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and self._session.moment is not None:
            self._declare(*args, **kwargs)
        return original(*args, **kwargs)

    def _placement_declared(
        self, local: Any = None, device_mesh: Any = None, placements: Any = None, **_: Any
    ) -> None:
        """The model says of one of its inputs how it lies on the device mesh."""
        session, moment = self._session, self._session.moment
        provenance = session.now.provenance
        if provenance is None or moment is None:
            return
        words = provenance.declared(local, device_mesh, placements)
        pieces, _ = rows_cut(words, 0, session.topology) if words else (1, 0)
        batch = moment.batch
        if pieces > 1 and local.shape[0] == batch.micro_batch_size:
            # What the loop gave to the model is this rank's part of the micro-batch.
            moment.change_batch(
                micro_batch_size=batch.micro_batch_size * pieces,
                global_rows=batch.global_rows * pieces,
            )

    def _target(self, target: torch.Tensor) -> torch.Tensor | None:
        """Outside of the model, of what it returned."""
        iteration = self._session.now
        if (
            not iteration.is_real
            or iteration.moment is not None
            or iteration.micro_batches.last is None
        ):
            return None
        if self._given.is_computed(target):
            return None
        return self._data.target(target)
