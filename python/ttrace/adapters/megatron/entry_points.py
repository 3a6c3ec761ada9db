"""Megatron-core, unchanged scripts included: entry points that are wrapped, the course of a step.

`forward_backward_func` gives the iteration, its data and its loss; `start_grad_sync` the gradients
before reduction; `finalize_model_grads` the last reductions; `CheckpointFunction` the identity of a
recomputed forward; the optimizer's `step` the end. Megatron is imported by the user's script only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

from ttrace.capture.scope import Scope

OnImport = Callable[[str, Callable[[ModuleType], None]], None]


def register(on_import: OnImport, scope: Scope) -> None:
    """Prepares the patches. Each is applied right after its module is executed."""
    capture = _Lazily(scope)
    replace = scope.patches.replace

    def schedules(module: ModuleType) -> None:
        original = module.get_forward_backward_func

        @functools.wraps(original)
        def get_forward_backward_func(*args: Any, **kwargs: Any) -> Any:
            return capture().wrap_schedule(original(*args, **kwargs))

        replace(module, "get_forward_backward_func", get_forward_backward_func)
        step = getattr(module, "forward_step", None)
        if step is None:
            return

        @functools.wraps(step)
        def forward_step(*args: Any, **kwargs: Any) -> Any:
            made = step(*args, **kwargs)
            capture().loss_made(made)
            return made

        replace(module, "forward_step", forward_step)

    def buffers(module: ModuleType) -> None:
        group = module._ParamAndGradBucketGroup
        original = group.start_grad_sync

        @functools.wraps(original)
        def start_grad_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
            # With a reduction under way this call is a repetition.
            if self.grad_reduce_handle is None:
                capture().before_reduction(self)
            with capture().reducing(self):
                return original(self, *args, **kwargs)

        replace(group, "start_grad_sync", start_grad_sync)

    def finalize(module: ModuleType) -> None:
        original = module.finalize_model_grads
        flatten = getattr(module, "_flatten_dense_tensors", None)

        @functools.wraps(original)
        def finalize_model_grads(*args: Any, **kwargs: Any) -> Any:
            with capture().reducing():
                return original(*args, **kwargs)

        replace(module, "finalize_model_grads", finalize_model_grads)
        if flatten is None:
            return

        @functools.wraps(flatten)
        def flatten_dense_tensors(tensors: Any) -> Any:
            flat = flatten(tensors)
            capture().flattened(tensors, flat)
            return flat

        replace(module, "_flatten_dense_tensors", flatten_dense_tensors)

    def random(module: ModuleType) -> None:
        checkpoint(module)
        tracker = getattr(module, "CudaRNGStatesTracker", None)
        original = getattr(tracker, "fork", None)
        if original is None:
            return

        @contextmanager
        def fork(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with capture().other_numbers(), original(self, *args, **kwargs) as found:
                yield found

        replace(tracker, "fork", functools.wraps(original)(fork))

    def checkpoint(module: ModuleType) -> None:
        function = module.CheckpointFunction
        forward, backward = function.forward, function.backward

        @functools.wraps(forward)
        def traced_forward(ctx: Any, *args: Any) -> Any:
            ctx.ttrace_position = capture().position
            return forward(ctx, *args)

        @functools.wraps(backward)
        def traced_backward(ctx: Any, *args: Any) -> Any:
            with capture().recomputing(getattr(ctx, "ttrace_position", None)):
                return backward(ctx, *args)

        replace(function, "forward", staticmethod(traced_forward))
        replace(function, "backward", staticmethod(traced_backward))
        if hasattr(module, "CheckpointWithoutOutput"):
            without_output(module.CheckpointWithoutOutput)

    def without_output(owner: Any) -> None:
        checkpoint, recompute = owner.checkpoint, owner._recompute

        @functools.wraps(checkpoint)
        def traced_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.ttrace_position = capture().position
            return checkpoint(self, *args, **kwargs)

        @functools.wraps(recompute)
        def traced_recompute(self: Any, *args: Any, **kwargs: Any) -> Any:
            with capture().recomputing(getattr(self, "ttrace_position", None)):
                return recompute(self, *args, **kwargs)

        replace(owner, "checkpoint", traced_checkpoint)
        replace(owner, "_recompute", traced_recompute)

    def optimizer(module: ModuleType) -> None:
        original = module.get_megatron_optimizer

        @functools.wraps(original)
        def get_megatron_optimizer(*args: Any, **kwargs: Any) -> Any:
            return capture().wrap_optimizer(original(*args, **kwargs))

        replace(module, "get_megatron_optimizer", get_megatron_optimizer)

    def router(module: ModuleType) -> None:
        owner = module.TopKRouter
        original = owner.routing

        @functools.wraps(original)
        def routing(self: Any, logits: Any, *args: Any, **kwargs: Any) -> Any:
            capture().routing(self, logits)
            return original(self, logits, *args, **kwargs)

        replace(owner, "routing", routing)

    core = "megatron.core."
    on_import(core + "pipeline_parallel.schedules", schedules)
    on_import(core + "distributed.param_and_grad_buffer", buffers)
    on_import(core + "distributed.finalize_model_grads", finalize)
    on_import(core + "tensor_parallel.random", random)
    on_import(core + "optimizer", optimizer)
    on_import(core + "transformer.moe.router", router)


class _Lazily:
    """Makes the capture when Megatron first asks: torch is not imported before. What Megatron calls
    goes on without it if that fails."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._capture: Any = None

    def __call__(self) -> Any:
        if self._capture is None and not self._scope.patches.active:
            self._capture = _Nothing()
        if self._capture is None:
            try:
                from ttrace.adapters.megatron.capture import MegatronCapture

                capture = self._capture = MegatronCapture(self._scope.settings)
                self._scope.when_closed(capture.close)
            except Exception as error:
                sys.stderr.write(f"ttrace: capture is off: {type(error).__name__}: {error}\n")
                self._capture = _Nothing()
        return self._capture


class _Nothing:
    """In place of a capture that could not be made."""

    def wrap_schedule(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        return schedule

    def wrap_optimizer(self, optimizer: Any) -> Any:
        return optimizer

    def before_reduction(self, group: Any) -> None:
        pass

    def routing(self, router: Any, logits: Any) -> None:
        pass

    def loss_made(self, returned: Any) -> None:
        pass

    def flattened(self, tensors: Any, flat: Any) -> None:
        pass

    def reducing(self, group: Any = None) -> AbstractContextManager[None]:
        return nullcontext()

    def recomputing(self, position: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def other_numbers(self) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def position(self) -> None:
        return None
