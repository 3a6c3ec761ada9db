"""Module hooks of a plain torch model: every module, no table of classes.

Outputs are seen by a hook for all modules of the process, because torch calls such hooks before
those of a module: before the output conversion of a parallel style, which turns a DTensor into a
plain tensor that no longer says where it lies. Inputs are seen last, after every conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from ttrace.adapters.torch_native_placement import Provenance, batch_dim
from ttrace.adapters.torch_native_session import DeferredSession
from ttrace.adapters.torch_native_topology import Unplaceable, dtensor_placements, is_dtensor
from ttrace.capture.module_hooks import ModuleHooks, _argument_names, _bind
from ttrace.capture.noise import Noise
from ttrace.capture.placed import ModuleRule, ParameterRule, RuleOrChoice, TensorRule
from ttrace.capture.rewrite import Place

# Hand their input on: noise on them would be applied twice.
_TRANSPARENT = (nn.Identity, nn.Flatten, nn.Unflatten)

Choice = Callable[[torch.Tensor], TensorRule | None]


class _Every(Mapping[str, RuleOrChoice]):
    """The same choice for every argument."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def __getitem__(self, key: str) -> Choice:
        return self._choice

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class TorchNativeHooks(ModuleHooks):
    """All modules of one model, containers included."""

    def __init__(self, session: DeferredSession, provenance: Provenance) -> None:
        super().__init__(session)
        self._deferred = session
        self._provenance = provenance
        self._rules: dict[nn.Module, tuple[str, ModuleRule]] = {}
        hook = torch_module.register_module_forward_hook(session.guarded(self._any_output))
        self._handles.append(hook)

    def install_all(self, root: nn.Module) -> None:
        """Compiled modules are left alone, with all that is in them."""
        hidden: set[nn.Module] = set()
        for fqn, module in root.named_modules():
            if module in hidden:
                continue
            kind = type(module).__name__
            if kind == "OptimizedModule" or getattr(module, "_compiled_call_impl", None):
                hidden |= set(module.modules())
                self._deferred.not_observed(fqn, kind, "compiled: its interior is not observed")
                continue
            self.install(module, fqn, self._rule(module, fqn))

    def install(self, module: nn.Module, fqn: str, rule: ModuleRule) -> None:
        super().install(module, fqn, rule)
        # The hook after the module's forward comes too late, see above.
        self._handles.pop().remove()
        self._rules[module] = fqn, rule

    def remove(self) -> None:
        super().remove()
        self._rules.clear()

    def before_root(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """For the first forward, which was under way when the hooks were installed."""
        fqn, rule = self._rules[root]
        self._before(root, fqn, rule, dict(_bind(_argument_names(root), args, kwargs)))

    def _any_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        known = self._rules.get(module)
        if known is None or self._session.moment is None:
            return None
        fqn, rule = known
        values = output if isinstance(output, tuple | list) else [output]
        for value in values:
            if isinstance(value, dict | tuple | list):
                reason = f"output inside a {type(value).__name__}"
                self._deferred.not_observed(fqn, type(module).__name__, reason)
        return self._after(module, fqn, rule, output)

    def _rule(self, module: nn.Module, fqn: str) -> ModuleRule:
        leaf = next(module.children(), None) is None
        choice = self._choice(fqn, type(module).__name__)
        every = _Every(choice)
        return ModuleRule(every, every, leaf and not isinstance(module, _TRANSPARENT))

    def _choice(self, fqn: str, kind: str) -> Choice:
        session = self._deferred

        def choose(value: torch.Tensor) -> TensorRule | None:
            moment = session.moment
            if moment is None:
                return None
            try:
                if is_dtensor(value):
                    placements = dtensor_placements(value, session.topology)
                else:
                    placements = self._provenance.placements(value)
                rows = batch_dim(value.shape, moment.batch.micro_batch_size)
                return TensorRule(placements, rows)
            except Unplaceable as reason:
                session.not_observed(fqn, kind, str(reason))
                return None

        return choose


class DTensorNoise(Noise):
    """Noise on DTensors: on the local tensor, by its place in the whole one. Terms of a pending
    sum get noise of their own on each rank."""

    def __init__(self, session: DeferredSession, number: int) -> None:
        super().__init__(session, number)
        self._deferred = session

    def perturbed(self, place: Place, tensor: torch.Tensor) -> torch.Tensor | None:
        if not is_dtensor(tensor):
            return super().perturbed(place, tensor)
        if any(hasattr(placement, "mask_buffer") for placement in tensor.placements):
            return None  # a look-up, which rounds nothing
        try:
            local, placements = self._deferred.local(tensor, place.rule.placements)
        except Unplaceable:
            return None
        arg = f"{place.arg}@{self._coordinate()}" if "Partial" in placements else place.arg
        rule = TensorRule(placements, place.rule.batch_dim)
        noisy = super().perturbed(replace(place, rule=rule, arg=arg), local)
        return None if noisy is None else _like(tensor, noisy)

    def parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        if not is_dtensor(gradient):
            return super().parameter_gradient(fqn, rule, coordinate, gradient)
        try:
            local, placements = self._deferred.local(gradient, rule.placements)
        except Unplaceable:
            return None
        if "Partial" in placements:
            coordinate = self._coordinate()
        placed = ParameterRule(placements)
        noisy = super().parameter_gradient(fqn, placed, coordinate, local)
        return None if noisy is None else _like(gradient, noisy)

    def _coordinate(self) -> str:
        place = self._deferred.topology.coordinate
        return ",".join(f"{name}={index}" for name, index in place.items())


def _like(tensor: Any, local: torch.Tensor) -> torch.Tensor:
    """A DTensor like another, of other values."""
    return type(tensor).from_local(
        local,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
