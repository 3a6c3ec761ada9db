"""Capture of a plain torch loop: one process, DistributedDataParallel, DTensor parallel modules.

`attach` does nothing at all unless the run is captured. An iteration is what lies between two steps
of the optimizer; a micro-batch is a training forward of the model in it. What a plain loop cannot
do is be run again by somebody else, so every leg is a launch of its own.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ttrace.adapters.torch_native_data import DataItems
from ttrace.adapters.torch_native_gradients import Clipping, Losses, Parameters
from ttrace.adapters.torch_native_hooks import (
    DTensorIsolation,
    DTensorNoise,
    TorchNativeHooks,
)
from ttrace.adapters.torch_native_patches import Patches
from ttrace.adapters.torch_native_placement import Provenance
from ttrace.adapters.torch_native_session import DeferredSession
from ttrace.adapters.torch_native_topology import Topology, unwrap
from ttrace.capture import collective_calls
from ttrace.capture.collectives import CollectiveLog
from ttrace.capture.graft import Graft
from ttrace.capture.isolation_source import IsolationSources
from ttrace.capture.placed import Batch, Moment
from ttrace.capture.recorded_values import RecordedValues
from ttrace.capture.rewrite import Rewrite
from ttrace.capture.settings import LegName, Settings

_LOW_PRECISION = (torch.float16, torch.bfloat16)
_attached: TorchNativeCapture | None = None


def attach(model: nn.Module, optimizer: torch.optim.Optimizer, *, out: str | None = None) -> None:
    """See ttrace.attach."""
    global _attached
    try:
        settings = Settings.from_environment()
        if settings is None and out is not None:
            settings = Settings(out=os.path.abspath(out))
            _create_folder(settings.out)
        if settings is None:
            return
        if _attached is not None and not _attached.session.over:
            raise RuntimeError("a second model was attached; only the first is captured")
        _attached = TorchNativeCapture(settings, model, optimizer)
    except Exception as error:
        sys.stderr.write(f"ttrace: not captured: {type(error).__name__}: {error}\n")


def _create_folder(folder: str) -> None:
    """What the launcher does before a recorded run; ranks may race for it."""
    os.makedirs(folder, exist_ok=True)
    try:
        with open(os.path.join(folder, "manifest.json"), "x", encoding="utf-8") as file:
            manifest = {"format": "ttrace", "version": 1, "command": sys.argv}
            file.write(json.dumps(manifest) + "\n")
    except FileExistsError:
        rank = int(os.environ.get("RANK", "0"))
        if os.path.exists(os.path.join(folder, f"rank-{rank:05}.r0")):
            raise RuntimeError(f"{folder!r} has a trace already") from None


class TorchNativeCapture:
    """One per process. Nothing but a few hooks that do nothing until the first captured forward:
    the model may still be wrapped in DistributedDataParallel after `attach`."""

    def __init__(
        self, settings: Settings, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.session = session = DeferredSession(settings)
        session.iteration = 0
        self._settings = settings
        self._root, self._ddp = unwrap(model)
        self._patches = Patches()
        self._graft: Graft | None = None
        self._hooks: TorchNativeHooks | None = None
        self._parameters: Parameters | None = None
        self._provenance: Provenance | None = None
        self._source: RecordedValues | None = None  # of an isolated leg
        self._collectives: CollectiveLog | None = None
        self._calls = 0  # forwards of this iteration
        self._calls_before = 0  # of the iteration before
        self._rows: int | None = None
        self._last_moment: Moment | None = None
        guarded = session.guarded
        self._enter = guarded(self._enter_root)
        self._data = DataItems(session, self._patches, guarded(self._ensure_started))
        self._losses = Losses(session, self._patches, lambda: self._last_moment)
        self._clipping = Clipping(session, self._patches, self._backward_done)
        self._patches.wrap_result(DistributedDataParallel, "__init__", self._ddp_made)
        self._handles: list[Any] = [
            self._root.register_forward_pre_hook(self._root_called, with_kwargs=True),
            self._root.register_forward_hook(guarded(self._leave_root), always_call=True),
            optimizer.register_step_pre_hook(guarded(self._before_step)),
            optimizer.register_step_post_hook(guarded(self._after_step)),
        ]

    # Start

    def _ddp_made(self, wrapper: DistributedDataParallel, result: Any) -> Any:
        """Finds a wrapper that is put around the model after `attach`."""
        if getattr(wrapper, "module", None) is self._root:
            self._ddp = wrapper
        return result

    def _ensure_started(self) -> None:
        """At the first thing that is captured: a data item, or a forward."""
        if not self.session.started:
            self._start()

    def _start(self) -> None:
        session, settings = self.session, self._settings
        if dist.is_available() and dist.is_initialized():
            session.rank = dist.get_rank()  # before anything can fail: messages name it
        topology = Topology.of(self._root, self._ddp)
        session.topology = topology
        session.start(
            topology.rank,
            topology.world_size,
            list(topology.size.items()),
            list(topology.coordinate.values()),
            {
                "framework": "torch",
                "torch": torch.__version__,
                "python": platform.python_version(),
                "model": type(self._root).__name__,
                "ddp": self._ddp is not None,
            },
        )
        session.note("replayer", name="none")
        if not self._clipping.observed:
            text = "reduced gradients are those after clipping: torch's clipping is unknown here"
            session.note("notice", text=text)
        session.note(
            "modules", classes={n: type(m).__name__ for n, m in self._root.named_modules()}
        )
        if settings.graft is not None:
            self._graft = self._data.graft = Graft(session)
        self._provenance = Provenance(topology)
        self._hooks = TorchNativeHooks(session, self._provenance)
        self._hooks.install_all(self._root)
        self._parameters = Parameters(session, self._root)
        self._listen()
        self._choose_leg()

    def _listen(self) -> None:
        assert self._hooks is not None and self._parameters is not None
        collective_calls.patch_late()  # nothing to do where the launcher has been
        gradients = self._parameters.gradients
        self._collectives = CollectiveLog(self.session, self._hooks, gradients, stable=False)
        if self._ddp is not None:
            reason = "DistributedDataParallel reduces gradients outside of Python"
            self.session.note("collectives_not_seen", phase="reduction", reason=reason)

    def _choose_leg(self) -> None:
        """Skips what asks for another precision, runs noise if this launch is a noise leg."""
        session, settings = self.session, self._settings
        assert self._hooks is not None and self._parameters is not None
        low = any(p.dtype in _LOW_PRECISION for p in self._root.parameters())
        reason = (
            "a plain torch loop cannot be run in fp32 from outside"
            if low or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
            else "the run is fp32 already"
        )
        own = LegName.parse(settings.leg)
        for leg in dict.fromkeys((*settings.legs, settings.leg)):
            if LegName.parse(leg).fp32:
                self._skip(leg, reason)
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
            self._skip(leg.text, reason)
            self._end()
            return
        noise = DTensorNoise(session, leg.noise) if leg.noise else None
        self._source = sources.of(leg.text)
        self._rewrite(DTensorIsolation(session, self._source, leg.source, noise))

    def _rewrite(self, rewrite: Rewrite) -> None:
        assert self._hooks is not None and self._parameters is not None
        self._hooks.rewrite = self._parameters.rewrite = rewrite

    def _skip(self, leg: str, reason: str) -> None:
        for iteration in self._settings.iterations:
            self.session.note("leg_skipped", leg=leg, iteration=iteration, reason=reason)

    # Forward

    def _root_called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.session.moment = None
        # Evaluation is no part of an iteration.
        if module.training and torch.is_grad_enabled() and self.session.due:
            self._enter(module, args, kwargs)

    def _enter_root(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        starts_here = not session.started
        self._ensure_started()
        if session.over:
            return
        hooks, provenance, parameters = self._hooks, self._provenance, self._parameters
        assert hooks is not None and provenance is not None and parameters is not None
        if (self._ddp is not None) != (session.topology.dp_name is not None):
            raise RuntimeError("the model was wrapped after the loop had read its first data")
        if self._calls == 0:
            parameters.begin_iteration(self._graft)
            if self._collectives is not None:
                self._collectives.begin()
        tensors = [value for value in (*args, *kwargs.values()) if torch.is_tensor(value)]
        provenance.begin(tensors)
        session.moment = self._last_moment = self._next_moment(tensors)
        hooks.begin_forward()
        if starts_here:
            hooks.before_root(module, args, kwargs)

    def _next_moment(self, tensors: list[torch.Tensor]) -> Moment:
        session, topology = self.session, self.session.topology
        rows = next((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), None)
        if rows is None:
            raise RuntimeError("the model's forward takes no tensor: micro-batches have no rows")
        if self._rows is not None and rows != self._rows:
            raise RuntimeError(f"a micro-batch of {rows} rows after one of {self._rows}")
        self._rows = rows
        micro_batch = self._calls * topology.dp_size + topology.dp_rank
        self._calls += 1
        # A lower bound, which noise needs now. Records wait for the truth.
        calls = max(self._calls, self._calls_before)
        total = calls * topology.dp_size * rows
        if self._source is not None:
            total = max(total, self._rows_of_source())
        batch = Batch(total, rows, calls, (1, topology.dp_size))
        return Moment(session.iteration, session.leg, micro_batch, batch)

    def _rows_of_source(self) -> int:
        """The global batch of the run that values are taken from, by the model's own inputs."""
        assert self._source is not None
        for name in inspect.signature(self._root.forward).parameters:
            where = ("real", "", "input", self.session.iteration, 0, name, "forward")
            shape = self._source.global_shape(where)
            if shape:
                return shape[0]
        return 0

    def _leave_root(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.session.moment = None

    # The optimizer's step

    def _backward_done(self) -> Parameters | None:
        """The gradients of this iteration are complete: at clipping, or at the step."""
        if not self.session.due or self._parameters is None or self._hooks is None:
            return None
        self._hooks.flush()
        self._parameters.after_backward()
        return self._parameters

    def _before_step(self, *_: Any) -> None:
        self._backward_done()
        if self._collectives is not None:
            self._collectives.enter("optimizer")

    def _after_step(self, *_: Any) -> None:
        session, settings = self.session, self._settings
        if session.due and session.started:
            self._end_iteration()
        session.iteration += 1
        self._calls_before, self._calls = self._calls, 0
        self._rows = self._last_moment = session.backward_moment = None
        self._data.begin_iteration()
        self._losses.begin_iteration()
        if session.iteration > settings.iterations[-1]:
            self._end()

    def _end_iteration(self) -> None:
        session = self.session
        iteration, rows = session.iteration, self._rows or 0
        dropped = set()
        if self._data.taken and (self._data.taken, self._data.rows) != (self._calls, self._rows):
            dropped.add("data")
            session.not_observed(
                "data",
                "",
                f"iteration {iteration}: {self._data.taken} items of {self._data.rows} rows were"
                f" read for {self._calls} forwards of {self._rows}",
            )
        if self._losses.several:
            dropped.add("loss")
            session.not_observed("loss", "", "several backward() in one micro-batch")
        session.release(
            self._calls * session.topology.dp_size * rows, lambda role: role not in dropped
        )
        if self._graft is not None:
            self._graft.report(iteration)
        if self._collectives is not None:
            self._collectives.end()
        session.seal(iteration, session.leg)

    def _end(self) -> None:
        """Nothing of capture remains in the model or in torch."""
        if self.session.recording:
            self.session.finish()
        self._patches.undo()
        for handle in self._handles:
            handle.remove()
        for part in (self._hooks, self._parameters):
            if part is not None:
                part.remove()
        if self._collectives is not None:
            self._collectives.stop()
        self._hooks = self._parameters = self._provenance = self._collectives = None
