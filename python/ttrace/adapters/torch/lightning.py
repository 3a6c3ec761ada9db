"""Capture of Lightning's loops without a changed line.

When the loop of `Trainer.fit` begins, the strategy has wrapped the model and made the optimizers,
and the sanity check of the validation data is over: that is where they are attached. Validation
runs in evaluation mode and without gradients, and is no part of an iteration.

What belongs to one forward is `training_step`, whatever it calls. Under DistributedDataParallel it
is run as the forward of the LightningModule, by a mechanism of Lightning's own. Without a wrapper
around the model it is called directly, which no hook of the model sees; in a captured run the same
mechanism is used there, unless the model has hooks, which would run once more than they should.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from ttrace.capture.scope import OnImport, Scope

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def register(on_import: OnImport, scope: Scope) -> None:
    """Imports nothing."""
    for package in _PACKAGES:
        on_import(f"{package}.loops.fit_loop", functools.partial(_patch_loop, scope))
        on_import(f"{package}.strategies.strategy", functools.partial(_patch_strategy, scope))


def _patch_loop(scope: Scope, module: ModuleType) -> None:
    owner = module._FitLoop
    original = owner.run

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        _attach(scope, self.trainer.strategy)
        return original(self, *args, **kwargs)

    scope.patches.replace(owner, "run", run)


def _attach(scope: Scope, strategy: Any) -> None:
    from ttrace.adapters.torch.attach import attach_loop

    optimizers = list(getattr(strategy, "optimizers", ()))
    if scope.has_loop or scope.is_closed or not optimizers or strategy.model is None:
        return
    model = strategy.lightning_module
    strategy.ttrace_redirects = strategy.model is model and not (
        model._forward_hooks or model._forward_pre_hooks or model._compiled_call_impl is not None
    )
    attach_loop(scope, strategy.model, optimizers)


def _patch_strategy(scope: Scope, module: ModuleType) -> None:
    owner = module.Strategy
    original = owner.training_step

    @functools.wraps(original)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        from ttrace.adapters.torch.attach import capture_of

        capture = capture_of(self.model)
        with nullcontext() if capture is None else capture.one_forward():
            if capture is None or not getattr(self, "ttrace_redirects", False):
                return original(self, *args, **kwargs)
            with self.precision_plugin.train_step_context():
                model = self.lightning_module
                return self._forward_redirection(model, model, "training_step", *args, **kwargs)

    scope.patches.replace(owner, "training_step", training_step)
