"""Module hooks of a plain torch model: every module, no table of classes.

Outputs are seen by the first of a module's hooks: before the output conversion of a parallel style,
which turns a DTensor into a plain tensor that no longer says where it lies. Inputs are seen last,
after every conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ttrace.adapters.torch.attached_model import AttachedModel
from ttrace.adapters.torch.autocast import casts_own_parameters
from ttrace.adapters.torch.backward import LossBackward
from ttrace.adapters.torch.compiled import AroundCall, compiled_by, is_compiled
from ttrace.adapters.torch.dtensors import (
    Unplaceable,
    dtensor_placements,
    first_row,
    is_dtensor,
    rows_cut,
    without_rows,
)
from ttrace.adapters.torch.fed_rows import Placed
from ttrace.adapters.torch.loop_session import LoopSession
from ttrace.adapters.torch.placement import Provenance, batch_dim
from ttrace.adapters.torch.topology import Topology
from ttrace.adapters.torch.wrappers import canonical_name, inside, is_activation_wrapper, wrappers
from ttrace.capture import nested
from ttrace.capture.isolation import Isolation
from ttrace.capture.module_hooks import Arguments, ModuleHooks
from ttrace.capture.nested import opaque
from ttrace.capture.noise import Noise
from ttrace.capture.placed import ModuleRule, ParameterRule, RuleOrChoice, TensorRule
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.recorded_values import RecordedValues, Unreadable
from ttrace.capture.rewrite import Place, Rewrite

# Hand their input on: noise on them would be applied twice.
_TRANSPARENT = (nn.Identity, nn.Flatten, nn.Unflatten)

_NO_TERMS = "a sum that is pending has no terms in another run"

_COMPILED = "what it computes inside is not observed"

Choice = Callable[[torch.Tensor], TensorRule | None]


class _Every(Mapping[str, RuleOrChoice]):
    """A choice for every argument: `make(argument)`, once."""

    def __init__(self, make: Callable[[str], Choice]) -> None:
        self._make = make
        self._choices: dict[str, Choice] = {}

    def __getitem__(self, key: str) -> Choice:
        choice = self._choices.get(key)
        if choice is None:
            choice = self._choices[key] = self._make(key)
        return choice

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class LoopHooks(ModuleHooks):
    """All modules of one model, containers included."""

    def __init__(
        self,
        session: LoopSession,
        draws: RandomDraws,
        backward: LossBackward,
        rewrite: Rewrite | None,
    ) -> None:
        super().__init__(session, draws, rewrite)
        self._backward = backward
        self._loop = session
        self._rules: dict[nn.Module, tuple[str, ModuleRule]] = {}

    def install_all(self, model: AttachedModel) -> None:
        """Of a compiled module only what can be seen from outside of it."""
        self.remove()
        root = model.root
        outside = {one.module: one.outside for one in model.roots}
        hidden: set[nn.Module] = set()
        for name, module in root.named_modules():
            if module in hidden or (module not in outside and is_activation_wrapper(module)):
                continue
            if module is root and module not in outside:
                continue  # it holds those that the loop calls
            seen = outside.get(module, module)
            fqn = canonical_name(name)
            if not fqn and module is not root:
                continue  # the wrapper around it is called once, where this runs again
            if is_compiled(seen):
                hidden |= set(module.modules())
                if self._loop.once("compiled", fqn):
                    reason = f"{compiled_by(seen)}: {_COMPILED}"
                    self._loop.note("compiled", fqn=fqn, reason=reason)
            rule = self._rule(inside(wrappers(module)[-1]), fqn)
            self._rules[seen] = fqn, rule
            self.install(seen, fqn, rule)

    def _around(
        self, module: nn.Module, before: Callable[..., Any], after: Callable[..., Any]
    ) -> list[Any]:
        return [AroundCall(module, before, after, first=True)]

    def _arguments(self, module: nn.Module, rule: ModuleRule) -> Arguments:
        return Arguments.of(inside(wrappers(module)[-1]), rule)

    def remove(self) -> None:
        super().remove()
        self._rules.clear()

    def not_called(self) -> list[str]:
        """The outermost modules that can be called and were not."""
        found: list[str] = []
        for module, (fqn, _) in self._rules.items():
            if self.called(fqn) or not fqn or type(module).forward is nn.Module.forward:
                continue
            if not any(name == fqn or fqn.startswith(f"{name}.") for name in found):
                found.append(fqn)
        return found

    def before_root(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """For the first forward, which was under way when the hooks were installed. `module` is
        the one that is seen."""
        fqn, rule = self._rules[module]
        self._before(module, fqn, rule, self._arguments(module, rule).bound(args, kwargs))

    def _before(
        self, module: nn.Module, fqn: str, rule: ModuleRule, arguments: Mapping[str, Any]
    ) -> dict[str, torch.Tensor]:
        if self._session.moment is not None:
            for name, value in arguments.items():
                self._say_opaque(fqn, "input", value, name)
        elif not torch.is_grad_enabled():
            self._loop.now.call_without_gradients()
        return super()._before(module, fqn, rule, arguments)

    def _after(self, module: nn.Module, fqn: str, rule: ModuleRule, output: Any) -> Any:
        if self._session.moment is not None:
            self._say_opaque(fqn, "output", output, "")
            self._say_precision(module, fqn, output)
        return super()._after(module, fqn, rule, output)

    def _is_of_loss(self) -> bool:
        return self._backward.runs()

    def _say_opaque(self, fqn: str, role: str, value: Any, name: str) -> None:
        for arg, kind in opaque(value, name):
            self._loop.not_recorded(fqn, role, arg, f"inside an object of class {kind}")

    def _say_precision(self, module: nn.Module, fqn: str, output: Any) -> None:
        device = next((v.device.type for _, v in nested.outputs(output) if v.requires_grad), None)
        if device is None or not torch.is_autocast_enabled(device):
            return
        is_first = self._loop.once("precision_inside", fqn)
        if is_first and casts_own_parameters(wrappers(module)[-1], output):
            dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            self._loop.note("precision_inside", fqn=fqn, dtype=dtype)

    def _rule(self, module: nn.Module, fqn: str) -> ModuleRule:
        leaf = next(module.children(), None) is None
        every = _Every(partial(self._choice, fqn, type(module).__name__))
        return ModuleRule(every, every, leaf and not isinstance(module, _TRANSPARENT))

    def _choice(self, fqn: str, kind: str, arg: str) -> Choice:
        session = self._loop

        def choose(value: torch.Tensor) -> TensorRule | None:
            moment, provenance = session.moment, session.now.provenance
            declared = session.topology.declared
            if moment is None or provenance is None:
                return None
            try:
                if is_dtensor(value):
                    placements = dtensor_placements(value, session.topology)
                elif declared is not None:
                    placements = declared.words(fqn, arg, value.dim())
                else:
                    placements = provenance.placements(value)
                gradient, unknown = placements, ""
                whole = tuple(value.shape) if is_dtensor(value) else None
                if declared is None:
                    gradient, unknown = _of_gradient(provenance, value, placements)
                    whole = whole or provenance.whole(value)
                rows = moment.batch.micro_batch_size
                rule = placed(placements, value, rows, session.topology, gradient, whole)
            except Unplaceable as reason:
                session.not_observed(fqn, kind, str(reason))
                return None
            return replace(rule, grad_unknown=unknown) if unknown else rule

        return choose


def _of_gradient(provenance: Provenance, value: torch.Tensor, placements: str) -> tuple[str, str]:
    """Where the gradient of a value at `placements` lies, or why that is not known."""
    if is_dtensor(value):
        return placements, ""  # it is a DTensor, too, and will say it itself
    try:
        return provenance.gradient_placements(value), ""
    except Unplaceable as reason:
        return placements, str(reason)


def placed(
    placements: str,
    value: torch.Tensor,
    micro_batch_size: int,
    topology: Topology,
    gradient: str | None = None,
    whole: tuple[int, ...] | None = None,
) -> TensorRule:
    """The rule of a tensor that lies so, and its gradient so, if that is said apart. Where the
    batch is cut, it is said by rows. `whole`: the shape of what it is a part of; None: parts are
    alike."""
    if gradient is None:
        gradient = placements
    shape = list(whole or value.shape)
    if whole is None:
        for word in placements.split():
            name, _, kind = word.partition(":")
            if kind.startswith("Shard("):
                shape[int(kind[6:-1])] *= topology.size[name]
    dim = batch_dim(torch.Size(shape), micro_batch_size)
    offset = first_row(placements, dim, shape[dim], topology) if dim >= 0 else 0
    unknown = ""
    if rows_cut(gradient, dim, topology) != rows_cut(placements, dim, topology):
        unknown = "its gradient is declared to be of other rows"
    placements, gradient = without_rows(placements, dim), without_rows(gradient, dim)
    apart = gradient if gradient != placements else None
    if dim < 0 and not placements.startswith("?"):
        over = topology.summed(but=gradient)
        apart = " ".join(word for word in ("mb:Partial(sum)", over, gradient) if word)
    return TensorRule(
        placements,
        dim,
        row_offset=offset,
        grad_placements=apart,
        grad_unknown=unknown,
        whole=whole,
    )


class DTensorNoise(Noise):
    """Noise on DTensors: on the local tensor, by its place in the whole one. Terms of a pending
    sum get noise of their own on each rank."""

    def __init__(self, session: LoopSession, number: int) -> None:
        super().__init__(session, number)
        self._loop = session

    def perturbed(
        self, place: Place, tensor: torch.Tensor, *, in_place: bool = False
    ) -> torch.Tensor | None:
        if not is_dtensor(tensor):
            if _is_pending(place, self._loop.topology):
                place = place._replace(arg=f"{place.arg}@{self._coordinate()}")
            return super().perturbed(place, tensor, in_place=in_place)
        if any(hasattr(placement, "mask_buffer") for placement in tensor.placements):
            return None  # a look-up, which rounds nothing
        try:
            local, rule = _local(self._loop, tensor, place.rule)
        except Unplaceable:
            return None
        placements = rule.placements
        arg = f"{place.arg}@{self._coordinate()}" if "Partial" in placements else place.arg
        noisy = super().perturbed(place._replace(rule=rule, arg=arg), local, in_place=in_place)
        return None if noisy is None else _like(tensor, noisy)

    def parameter_gradient(
        self, fqn: str, rule: ParameterRule, coordinate: str, gradient: torch.Tensor
    ) -> torch.Tensor | None:
        if not is_dtensor(gradient):
            return super().parameter_gradient(fqn, rule, coordinate, gradient)
        try:
            local = self._loop.local(gradient, rule.placements)
        except Unplaceable:
            return None
        if "Partial" in local.placements:
            coordinate = self._coordinate()
        placed = ParameterRule(local.placements, whole=local.whole)
        noisy = super().parameter_gradient(fqn, placed, coordinate, local.tensor)
        return None if noisy is None else _like(gradient, noisy)

    def _coordinate(self) -> str:
        place = self._loop.topology.coordinate
        return ",".join(f"{name}={index}" for name, index in place.items())


class DTensorIsolation(Isolation):
    """Isolation of modules that take and return DTensors: the local tensor is replaced."""

    def __init__(
        self,
        session: LoopSession,
        source: RecordedValues,
        source_leg: str,
        noise: DTensorNoise | None,
        in_checkpoint: Callable[[], bool],
    ) -> None:
        super().__init__(session, source, source_leg, noise)
        self._loop = session
        self._in_checkpoint = in_checkpoint
        self._given: set[tuple[Any, ...]] = set()  # gradients that were put in place

    def given(self, place: Place, tensor: torch.Tensor) -> torch.Tensor:
        if self._in_checkpoint():
            gradient = place._replace(role="grad_output", arg="")
            self.keeps(gradient, "its forward is run again, on values that are its own")
        return super().given(place, tensor)

    def seen(self, place: Place, tensor: torch.Tensor) -> None:
        if not is_dtensor(tensor):
            super().seen(place, tensor)

    def passed_on(self, place: Place, gradient: torch.Tensor) -> torch.Tensor:
        """What is recorded is the sum over all backwards through the graph. The first gets it; then
        nothing is left for those that follow, and the module's gradients are those of the sum."""
        key = (place.moment, place.fqn, place.arg, place.call)
        if key in self._given:
            return torch.zeros_like(gradient)
        value = self.value(place, gradient)
        if value is None:
            return gradient
        self._given.add(key)
        return value

    def value(self, place: Place, tensor: torch.Tensor) -> torch.Tensor | None:
        if place.rule.placements.startswith("?"):
            return self.keeps(place, "where it lies on the device mesh is not known")
        if not is_dtensor(tensor):
            if place.pass_ == "backward" and place.rule.grad_unknown:
                return self.keeps(place, place.rule.grad_unknown)
            if _is_pending(place, self._loop.topology):
                return self.keeps(place, _NO_TERMS)
            return self._plain_value(place, tensor)
        try:
            local, rule = _local(self._loop, tensor, place.rule)
        except Unplaceable as reason:
            return self.keeps(place, str(reason))
        if "Partial" in rule.placements:
            return self.keeps(place, _NO_TERMS)
        value = super().value(place._replace(rule=rule), local)
        return None if value is None else _like(tensor, value)

    def _plain_value(self, place: Place, tensor: torch.Tensor) -> torch.Tensor | None:
        """Of rows that the reference has elsewhere those values."""
        placed = place.moment.placed
        passes = (place.pass_, "forward" if place.role == "input" else "backward")
        for pass_ in dict.fromkeys(passes):
            where = self._where(place, pass_)
            if placed is None or not self._source.has(where):
                continue
            shape = self._source.global_shape(where)
            dim, rows = _rows_in(placed, list(tensor.shape), shape)
            if dim < 0 and place.rule.batch_dim >= 0:
                return self.keeps(place, "whose rows these are cannot be told")
            if dim < 0:
                break
            rule = replace(place.rule, batch_dim=dim, grad_placements=None)
            here = place._replace(rule=rule)
            spec = self._loop.spec_of(here, tensor, shape[dim])
            at_begin = placed.padded_at_begin
            try:
                value = self._source.read_placed(where, spec, rows, at_begin, tensor.detach())
            except Unreadable as error:
                return self.keeps(place, str(error))
            return None if value is None else self.noisy(here, value)
        return super().value(place, tensor)


def _rows_in(placed: Placed, local: list[int], whole: list[int]) -> tuple[int, list[int]]:
    """The dimension of a tensor that counts rows, here as many as it has and in the whole as many
    as the reference has, or as many elements a row in both; -1: none."""
    if len(local) != len(whole):
        return -1, []
    for space in placed.spaces:
        for dim, (size, all_) in enumerate(zip(local, whole, strict=True)):
            if size == space.count and all_ == space.total:
                return dim, space.places
    for space in placed.spaces:
        for dim, (size, all_) in enumerate(zip(local, whole, strict=True)):
            each = size // space.count if space.count else 0
            if each > 1 and each * space.count == size and each * space.total == all_:
                return dim, space.places
    return -1, []


def _is_pending(place: Place, topology: Topology) -> bool:
    """Whether each rank of the device mesh has a term of a sum, by the rule of a plain tensor."""
    words = (word.partition(":") for word in place.placements.split())
    return any(name in topology.tensor_dims and "Partial" in kind for name, _, kind in words)


def _local(
    session: LoopSession, tensor: torch.Tensor, rule: TensorRule
) -> tuple[torch.Tensor, TensorRule]:
    """The local tensor of a DTensor, and where it lies now."""
    local = session.local(tensor, rule.placements, rule.batch_dim)
    return local.tensor, replace(rule, placements=local.placements, whole=local.whole)


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
