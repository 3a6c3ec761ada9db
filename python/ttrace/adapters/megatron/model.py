"""The model as capture sees it: chunks, named parameters, hooks, and what is not observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ttrace.adapters.megatron import names
from ttrace.adapters.megatron.declared import declared, is_distributed_tensor
from ttrace.adapters.megatron.experts import scores
from ttrace.adapters.megatron.names import Numbering
from ttrace.adapters.megatron.rules import ModuleRules, is_transparent
from ttrace.adapters.megatron.topology import Topology
from ttrace.adapters.megatron.unsupported import is_sharding, uses_cuda_graphs
from ttrace.capture.module_hooks import Arguments, ModuleHooks
from ttrace.capture.placed import Batch, ModuleRule, Moment, ParameterRule
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.rewrite import Place
from ttrace.capture.session import Session
from ttrace.capture.settings import LegName

if TYPE_CHECKING:
    from ttrace.adapters.megatron.batch import MadeLoss

# The shape of a whole parameter in the reference, where there is one.
ReferenceShape = Callable[[str], "list[int] | None"]


@dataclass(eq=False)
class ParameterEntry:
    """A parameter, who owns it, and where it lies. The owner's slot is read anew each time, since
    an fp32 leg puts another parameter there.

    `early`: it is read when the model's forward begins, unless it is gathered only where it is
    used. No hook of its owner says when that is for certain: the owner may never be called, or only
    inside a compiled region (`silent`), where no hook runs.
    """

    fqn: str
    owner: nn.Module
    slot: str
    original: nn.Parameter
    rule: ParameterRule
    early: bool = False
    silent: bool = False

    @property
    def current(self) -> nn.Parameter:
        return self.owner._parameters[self.slot]


class Chunk:
    """One pipeline stage's piece of the model on this rank."""

    def __init__(
        self,
        wrapped: nn.Module,
        first_layer: int,
        topology: Topology,
        reference_shape: ReferenceShape | None,
    ) -> None:
        self.wrapped = wrapped
        self.root = names.unwrap(wrapped)
        self.config: Any = self.root.config
        self.entry = wrapped if uses_cuda_graphs(self.config) else _entry(wrapped)
        self.rules = ModuleRules(topology, self.config, self.root)
        self.numbering = Numbering(first_layer, topology.first_expert(self.config))
        self.forwards = 0  # of the root, in the current call of the schedule
        self.parameters: list[ParameterEntry] = []
        self.refused_parameters: list[tuple[str, str]] = []  # fqn, reason
        self.unused_parameters: list[str] = []
        self.known: dict[str, tuple[nn.Module, ModuleRule]] = {}
        self.unknown: list[tuple[str, str, str]] = []  # fqn, class, reason
        self.compiled: list[str] = []
        self.named: dict[str, nn.Module] = {}  # by fqn, what a compiled one is inside
        self._topology = topology
        self._reference_shape = reference_shape
        self._find()

    def _find(self) -> None:
        is_region = any(map(names.is_compiled, names.wrappers(self.wrapped)))
        # Megatron refuses to capture modules that have hooks.
        regions = [""] if is_region or uses_cuda_graphs(self.config) else []
        if is_region:
            self.compiled.append("")
        for name, module in self.root.named_modules():
            fqn = self.numbering.module(name)
            inside = any(_is_inside(name, region) for region in regions)
            if names.is_compiled(module) and module is not self.root:
                regions.append(name)
                if not inside:
                    self.compiled.append(fqn)
                inner = module._modules.get("_orig_mod")
                if inner is not None:
                    # Hooks of the wrapper run outside of what is compiled.
                    if not inside:
                        self._find_rule(module, inner, fqn)
                    continue
                inside = True
            self.named[fqn] = module
            self.rules.kind(module, fqn)
            self._find_parameters(name, fqn, module, inside)
            if not inside:
                self._find_rule(module, module, fqn)
        if is_region and self.entry is not self.wrapped:
            self._find_rule(self.entry, self.root, "")

    def earlier_calls(self) -> dict[tuple[str, str], int]:
        """What a forward of the whole model has called already when this chunk's begins, of modules
        that this chunk has too."""
        if not names.embeds_again(self.root):
            return {}
        return {(fqn, "forward"): 1 for fqn in self.known if fqn.split(".")[0] == "embedding"}

    def _find_rule(self, module: nn.Module, known_as: nn.Module, fqn: str) -> None:
        """`module` is what is called, `known_as` what it is; they differ if it is compiled."""
        if is_transparent(known_as):
            return
        kind = type(known_as).__name__
        self.named[fqn] = known_as
        self.rules.kind(known_as, fqn)
        rule = self.rules.module(known_as, fqn)
        if rule is None:
            self.unknown.append((fqn, kind, "unknown module class"))
            return
        if module is not known_as and rule.arguments is None:
            rule = replace(rule, arguments=Arguments.of(known_as).names)
        self.known[fqn] = (module, rule)

    def _find_parameters(self, name: str, fqn: str, module: nn.Module, compiled: bool) -> None:
        for slot, parameter in module._parameters.items():
            if parameter is None:
                continue
            local = f"{name}.{slot}" if name else slot
            if names.is_unused(local, self.root):
                self.unused_parameters.append(local)
                continue
            own = self.rules.fused_norms.parameter(fqn, slot)
            own = own or self.numbering.parameter(local, self.root)
            if is_distributed_tensor(parameter) or is_sharding(self.wrapped):
                self.refused_parameters.append((own, "it is sharded between its uses"))
                continue
            rule = self.rules.parameter(module, fqn, slot)
            known = rule is not None
            if rule is None:
                shape = self._reference_shape(own) if self._reference_shape else None
                found = declared(parameter, self._topology, shape)
                if found.refusal is not None:
                    self.refused_parameters.append((own, found.refusal))
                    continue
                rule = self.rules.declared(found)
            early = compiled or not known
            self.parameters.append(
                ParameterEntry(own, module, slot, parameter, rule, early, silent=compiled)
            )

    def gathers_where_used(self, entry: ParameterEntry) -> bool:
        """Whether the values that a step left on other ranks may come later than the beginning of
        the model's forward: Megatron overlaps their gathering with it."""
        configuration = getattr(self.wrapped, "ddp_config", None)
        overlaps = getattr(configuration, "overlap_param_gather", False)
        return overlaps and entry.original in getattr(self.wrapped, "param_to_bucket_group", {})


def _entry(wrapped: nn.Module) -> nn.Module:
    """The module whose hooks see each forward of the model, outside of what is compiled."""
    chain = names.wrappers(wrapped)
    for index, module in enumerate(chain):
        if names.is_compiled(module):
            return module if "_orig_mod" in module._modules else chain[max(index - 1, 0)]
    return chain[-1]


def _is_inside(name: str, region: str) -> bool:
    return not region or name.startswith(f"{region}.")


class Model:
    """All chunks of this rank."""

    def __init__(
        self,
        session: Session,
        wrapped: list[nn.Module],
        draws: RandomDraws,
        reference_shape: ReferenceShape | None = None,
    ) -> None:
        self.session = session
        self.config: Any = names.unwrap(wrapped[0]).config
        self.topology = Topology.of(self.config)
        roots = [names.unwrap(chunk) for chunk in wrapped]
        first = names.first_layers(
            roots,
            self.topology.coordinate["pp"],
            self.topology.size["pp"],
            session.settings,
        )
        self.chunks = [
            Chunk(chunk, offset, self.topology, reference_shape)
            for chunk, offset in zip(wrapped, first, strict=True)
        ]
        self.wrapped = wrapped
        self.hooks = ModuleHooks(session, draws)
        self.batch: Batch | None = None
        self.last_moment: Moment | None = None
        self._loss: MadeLoss | None = None  # of the micro-batch whose loss the schedule divides
        self.router_functions: set[str] = set()  # of which a note was made
        self.device = names.device_of(wrapped[0])
        for chunk in self.chunks:
            chunk.rules.experts.is_forced = lambda: LegName.parse(session.leg).isolated
        self._handles: list[Any] = []
        self._leaving: list[Any] = []  # hooks that run when a chunk's forward is over
        # Where each module with a rule is, by id.
        self._known = {id(m): (c, n) for c in self.chunks for n, (m, _) in c.known.items()}
        self._by_parameter = {id(e.original): e for e in self.parameters()}

    @property
    def stages(self) -> int:
        return self.topology.size["pp"]

    def parameters(self) -> Iterator[ParameterEntry]:
        for chunk in self.chunks:
            yield from chunk.parameters

    def entry_of(self, parameter: torch.Tensor) -> ParameterEntry | None:
        return self._by_parameter.get(id(parameter))

    def install(
        self,
        on_forward: Callable[[Chunk, int, Any, Any], Any],
        on_owner_called: Callable[[nn.Module], None],
        on_left: Callable[[Chunk, Any], None],
    ) -> None:
        """Registers all hooks. `on_forward` runs when the k-th forward of a chunk begins, and may
        return other arguments; `on_owner_called` when a module with parameters of its own is about
        to use them; `on_left` when the last forward of a chunk is over."""
        guarded = self.session.guarded
        for chunk in self.chunks:
            self._handles.append(
                chunk.entry.register_forward_pre_hook(
                    guarded(self._enter_root(chunk, on_forward)), with_kwargs=True
                )
            )
            owners = {id(e.owner): e.owner for e in chunk.parameters if not e.silent}
            for owner in owners.values():
                self._handles.append(
                    owner.register_forward_pre_hook(
                        guarded(lambda module, args: on_owner_called(module))
                    )
                )
            for fqn, (module, rule) in chunk.known.items():
                self.hooks.install(module, fqn, rule)
            self._leaving.append(
                chunk.entry.register_forward_hook(
                    guarded(self._leave_root(chunk, on_left)), always_call=True
                )
            )

    def record_scores(self, router: nn.Module, logits: torch.Tensor) -> None:
        """What a router chooses the largest of."""
        session, moment = self.session, self.session.moment
        values = scores(router, logits.detach())
        if moment is None or values is None or id(router) not in self._known:
            return
        chunk, fqn = self._known[id(router)]
        rule = chunk.rules.of_tokens(values)
        if rule is not None:
            call = moment.calls.get((fqn, session.pass_), 1) - 1
            place = Place(moment, rule, fqn, "output", "scores", call, session.pass_)
            session.record_at(place, values)

    def go_last(self) -> None:
        """Has all hooks run after those that others registered since: a loop may take off the hooks
        that wait for gathered parameters, and put them back."""
        for handle in (*self._handles, *self.hooks.handles, *self._leaving):
            hooks = handle.hooks_dict_ref()
            if hooks is not None and handle.id in hooks:
                hooks.move_to_end(handle.id)

    def remove_hooks(self) -> None:
        self.hooks.remove()
        for handle in (*self._handles, *self._leaving):
            handle.remove()
        self._handles.clear()
        self._leaving.clear()

    def begin_call(self, batch: Batch) -> None:
        """A call of the schedule begins."""
        self.batch = batch
        for chunk in self.chunks:
            chunk.forwards = 0
            chunk.rules.begin_call(batch)

    def end_call(self) -> None:
        self.batch = None

    @property
    def has_loss(self) -> bool:
        return self._loss is not None

    def keep_loss(self, loss: MadeLoss) -> None:
        self._loss = loss

    def take_loss(self) -> MadeLoss | None:
        loss, self._loss = self._loss, None
        return loss

    def micro_batch(self, forward: int) -> int:
        """The number of a micro-batch in the global batch: in every schedule, the k-th forward of
        a chunk is micro-batch k."""
        return forward * self.topology.size["dp"] + self.topology.coordinate["dp"]

    def _enter_root(
        self, chunk: Chunk, on_forward: Callable[[Chunk, int, Any, Any], Any]
    ) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            session = self.session
            if self.batch is None:
                return None
            forward, chunk.forwards = chunk.forwards, chunk.forwards + 1
            self.last_moment = Moment(
                session.iteration,
                session.leg,
                self.micro_batch(forward),
                self.batch,
                chunk.earlier_calls(),
            )
            session.now.begin_forward(self.last_moment)
            self.hooks.begin_forward()
            return on_forward(chunk, forward, args, kwargs)

        return hook

    def _leave_root(
        self, chunk: Chunk, on_left: Callable[[Chunk, Any], None]
    ) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self.session.now.end_forward()
            if self.batch is not None:
                on_left(chunk, output)

        return hook
