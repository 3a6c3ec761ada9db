"""Capture of Lightning's loops without a changed line.

When the loop of `Trainer.fit` begins, the strategy has wrapped the model and made the optimizers,
and the sanity check of the validation data is over: that is where they are attached. Validation
runs in evaluation mode and without gradients, and is no part of an iteration.

What belongs to one forward is `training_step`, whatever it calls. Under DistributedDataParallel it
is run as the forward of the LightningModule, by a mechanism of Lightning's own. Without a wrapper
around the model it is called directly, which no hook of the model sees; in a captured run the same
mechanism is used there, unless the model has hooks, which would run once more than they should.

With manual optimization `training_step` is the loop: it calls the modules that the LightningModule
is made of, makes the backwards and has the optimizers step, in turn or not. Those modules are what
is attached, under their own names.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    parts = {} if model.automatic_optimization else _parts(model)
    if parts:
        attach_loop(scope, parts, optimizers, within=strategy.model)
        return
    strategy.ttrace_redirects = strategy.model is model and not (
        model._forward_hooks or model._forward_pre_hooks or model._compiled_call_impl is not None
    )
    attach_loop(scope, strategy.model, optimizers)


def _parts(model: Any) -> dict[str, Any]:
    """By name, the modules that hold its parameters; none if some are not in one that can be
    called."""
    if next(model.parameters(recurse=False), None) is not None:
        return {}
    from torch import nn

    children = model.named_children()
    parts = {n: part for n, part in children if next(part.parameters(), None) is not None}
    can_be_called = all(type(part).forward is not nn.Module.forward for part in parts.values())
    return parts if can_be_called else {}


def _patch_strategy(scope: Scope, module: ModuleType) -> None:
    owner = module.Strategy
    original = owner.training_step

    @functools.wraps(original)
    def training_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        from ttrace.adapters.torch.attach import capture_of

        capture = capture_of(self.model)
        if capture is None:
            return original(self, *args, **kwargs)
        redirects = getattr(self, "ttrace_redirects", False)
        step = functools.partial(_redirected if redirects else original, self)

        def once_or_again(*args: Any, **kwargs: Any) -> Any:
            with nullcontext() if capture.is_real else _logging_nothing(self.lightning_module):
                return step(*args, **kwargs)

        return capture.one_forward(once_or_again, args, kwargs)

    scope.patches.replace(owner, "training_step", training_step)


@contextmanager
def _logging_nothing(module: Any) -> Iterator[None]:
    """What a step logs is added up by the trainer, and it has been."""
    names = ("log", "log_dict")
    for name in names:
        vars(module)[name] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        for name in names:
            vars(module).pop(name, None)


def _redirected(strategy: Any, *args: Any, **kwargs: Any) -> Any:
    model = strategy.lightning_module
    with strategy.precision_plugin.train_step_context():
        return strategy._forward_redirection(model, model, "training_step", *args, **kwargs)
