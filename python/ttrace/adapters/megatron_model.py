"""The model as capture sees it: chunks, named parameters, hooks, and what is not observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ttrace.adapters import megatron_names as names
from ttrace.adapters.megatron_names import Topology
from ttrace.adapters.megatron_numbering import numbering_mismatches
from ttrace.adapters.megatron_rules import ModuleRules, is_transparent
from ttrace.capture.module_hooks import ModuleHooks
from ttrace.capture.placed import Batch, ModuleRule, Moment, ParameterRule
from ttrace.capture.session import Session


@dataclass(eq=False)
class ParameterEntry:
    """A parameter, who owns it, and where it lies. The owner's slot is read anew each time, since
    an fp32 leg puts another parameter there."""

    fqn: str
    owner: nn.Module
    slot: str
    original: nn.Parameter
    rule: ParameterRule

    @property
    def current(self) -> nn.Parameter:
        return self.owner._parameters[self.slot]


class Chunk:
    """One pipeline stage's piece of the model on this rank."""

    def __init__(self, wrapped: nn.Module, first_layer: int, topology: Topology) -> None:
        self.wrapped = wrapped
        self.root = names.unwrap(wrapped)
        self.config: Any = self.root.config
        self.rules = ModuleRules(topology, self.config, self.root)
        self.first_layer = first_layer
        self.forwards = 0  # of the root, in the current call of the schedule
        self.parameters: list[ParameterEntry] = []
        self.unknown_parameters: list[tuple[str, str]] = []
        self.known: dict[str, tuple[nn.Module, ModuleRule]] = {}
        self.unknown: list[tuple[str, str, str]] = []  # fqn, class, reason
        self.classes: dict[str, str] = {}
        self._find()

    def _find(self) -> None:
        for name, module in self.root.named_modules():
            fqn = names.module_name(name, self.first_layer)
            kind = type(module).__name__
            self.classes[fqn] = kind
            self._find_parameters(name, module)
            if is_transparent(module):
                continue
            if kind == "OptimizedModule" or getattr(module, "_compiled_call_impl", None):
                self.unknown.append((fqn, kind, "compiled: its interior is not observed"))
                continue
            rule = self.rules.module(module, fqn)
            if rule is None:
                self.unknown.append((fqn, kind, "unknown module class"))
            else:
                self.known[fqn] = (module, rule)

    def _find_parameters(self, name: str, module: nn.Module) -> None:
        for slot, parameter in module._parameters.items():
            if parameter is None:
                continue
            local = f"{name}.{slot}" if name else slot
            fqn = names.parameter_name(local, self.root, self.first_layer)
            rule = self.rules.parameter(module, names.module_name(name, self.first_layer), slot)
            if rule is None:
                self.unknown_parameters.append((fqn, type(module).__name__))
            else:
                self.parameters.append(ParameterEntry(fqn, module, slot, parameter, rule))


class Model:
    """All chunks of this rank."""

    def __init__(self, session: Session, wrapped: list[nn.Module]) -> None:
        self.session = session
        self.config: Any = names.unwrap(wrapped[0]).config
        self.topology = Topology.of(self.config)
        roots = [names.unwrap(chunk) for chunk in wrapped]
        first = names.first_layers(roots, self.topology.coordinate["pp"], self.topology.size["pp"])
        self.chunks = [
            Chunk(chunk, offset, self.topology)
            for chunk, offset in zip(wrapped, first, strict=True)
        ]
        self.wrapped = wrapped
        self.hooks = ModuleHooks(session)
        self.batch: Batch | None = None
        self.last_moment: Moment | None = None
        self.device = names.device_of(wrapped[0])
        self._handles: list[Any] = []
        self._by_parameter = {id(e.original): e for e in self.parameters()}

    def parameters(self) -> Iterator[ParameterEntry]:
        for chunk in self.chunks:
            yield from chunk.parameters

    def entry_of(self, parameter: torch.Tensor) -> ParameterEntry | None:
        return self._by_parameter.get(id(parameter))

    def install(self, on_owner_called: Callable[[nn.Module], None]) -> None:
        """Registers all hooks. `on_owner_called` runs when a module with parameters of its own is
        about to use them."""
        guarded = self.session.guarded
        for chunk in self.chunks:
            self._handles.append(
                chunk.root.register_forward_pre_hook(guarded(self._enter_root(chunk)))
            )
            for owner in {id(e.owner): e.owner for e in chunk.parameters}.values():
                self._handles.append(
                    owner.register_forward_pre_hook(
                        guarded(lambda module, args: on_owner_called(module))
                    )
                )
            for fqn, (module, rule) in chunk.known.items():
                self.hooks.install(module, fqn, rule)
            self._handles.append(
                chunk.root.register_forward_hook(guarded(self._leave_root), always_call=True)
            )

    def remove_hooks(self) -> None:
        self.hooks.remove()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def begin_call(self, batch: Batch) -> None:
        """A call of the schedule begins."""
        self.batch = batch
        for chunk in self.chunks:
            chunk.forwards = 0

    def micro_batch(self, forward: int) -> int:
        """The number of a micro-batch in the global batch: in every schedule, the k-th forward of
        a chunk is micro-batch k."""
        return forward * self.topology.size["dp"] + self.topology.coordinate["dp"]

    def _enter_root(self, chunk: Chunk) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            session = self.session
            if self.batch is None:
                return
            forward, chunk.forwards = chunk.forwards, chunk.forwards + 1
            session.moment = self.last_moment = Moment(
                session.iteration, session.leg, self.micro_batch(forward), self.batch
            )
            session.pass_ = "forward"
            self.hooks.begin_forward()

        return hook

    def _leave_root(self, module: nn.Module, args: Any, output: Any) -> None:
        self.session.moment = None

    # Notes

    def write_notes(self) -> None:
        """What is known before the first step."""
        note = self.session.note
        classes: dict[str, str] = {}
        for chunk in self.chunks:
            classes.update(chunk.classes)
            for fqn, kind, reason in chunk.unknown:
                note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})
            for fqn, kind in chunk.unknown_parameters:
                reason = "parameter of an unknown module class"
                note("not_observed", **{"fqn": fqn, "class": kind, "reason": reason})
            for fqn, (module, rule) in chunk.known.items():
                for child in rule.not_materialised:
                    reason = f"fused into {type(module).__name__}"
                    note("not_materialised", fqn=f"{fqn}.{child}", reason=reason)
            for fqn, name, value, expected in numbering_mismatches(
                chunk.root, chunk.config, chunk.first_layer
            ):
                note("attribute", fqn=fqn, name=name, value=value, expected=expected)
        note("modules", classes=classes)
        self._note_attributes()

    def note_not_called(self) -> None:
        """Modules that are there and never ran although their parent did."""
        for chunk in self.chunks:
            for fqn in chunk.known:
                parent = fqn.rpartition(".")[0]
                while parent and parent not in chunk.known:
                    parent = parent.rpartition(".")[0]
                if not self.hooks.called(fqn) and self.hooks.called(parent):
                    self.session.note(
                        "not_materialised", fqn=fqn, reason="its parent never calls it"
                    )

    def _note_attributes(self) -> None:
        """Attributes that Megatron reduces and slices by, where they are not as expected."""
        for entry in self.parameters():
            for name, value, expected in self._attributes(entry):
                if value != expected:
                    self.session.note(
                        "attribute", fqn=entry.fqn, name=name, value=value, expected=expected
                    )
        for chunk in self.chunks:
            for group in getattr(chunk.wrapped, "bucket_groups", ()):
                for bucket in group.buckets:
                    self._note_scaling(chunk, bucket)

    def _attributes(self, entry: ParameterEntry) -> Iterator[tuple[str, Any, Any]]:
        parameter, topology = entry.original, self.topology
        if topology.sequence_parallel:
            expected = "tp" in entry.rule.reduced_over
            value = bool(getattr(parameter, "sequence_parallel", False))
            yield "sequence_parallel", value, expected
        if topology.size["tp"] > 1:
            expected = "tp:" in entry.rule.placements
            value = bool(getattr(parameter, "tensor_model_parallel", False))
            yield "tensor_model_parallel", value, expected
        if topology.size["pp"] > 1:
            expected = "pp" in entry.rule.reduced_over
            value = bool(getattr(parameter, "shared_embedding", False))
            yield "shared_embedding", value, expected

    def _note_scaling(self, chunk: Chunk, bucket: Any) -> None:
        size = self.topology.size
        expected = 1.0 / (size["dp"] * size["cp"])
        if chunk.config.calculate_per_token_loss or chunk.wrapped.ddp_config.average_in_collective:
            expected = 1.0
        if bucket.gradient_scaling_factor != expected:
            entry = self.entry_of(bucket.params_list[0])
            self.session.note(
                "attribute",
                fqn=entry.fqn if entry else "",
                name="gradient_scaling_factor",
                value=bucket.gradient_scaling_factor,
                expected=expected,
                of="bucket",
            )
