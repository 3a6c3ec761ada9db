"""Hooks that record a module's inputs, outputs and their gradients, given a table of rules.

Knows torch and nothing of any framework. In the real leg nothing that a hook does is visible to
the program: no tensor is replaced, no node is added to the graph. In other legs a Rewrite may put
other values in place of what passes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from ttrace.capture import nested
from ttrace.capture.input_gradients import GradientSum, InputTarget, watch_inputs
from ttrace.capture.low_precision import FP8, in_fp8
from ttrace.capture.placed import ModuleRule, Moment, RuleOrChoice, TensorRule
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.rewrite import Place, Rewrite
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import unwrapped

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


@dataclass(eq=False)
class _Frame:
    """One running call of a module."""

    module: nn.Module
    fqn: str
    moment: Moment
    call: int
    targets: list[InputTarget]


class ModuleHooks:
    """All hooks of one model (or chunk of one)."""

    def __init__(
        self,
        session: Session,
        draws: RandomDraws | None = None,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.rewrite = rewrite
        self.draws = draws
        # In a backward, the innermost module whose output's gradient arrived last.
        self.last_backward = ""
        self._last_arrived = 0  # where that gradient lies
        self._session = session
        self._handles: list[Any] = []
        self._frames: list[_Frame] = []
        self._sums: list[GradientSum] = []
        self._called: set[str] = set()
        self._handed_out: set[tuple[str, str]] = set()  # (module, output)

    def install(self, module: nn.Module, fqn: str, rule: ModuleRule) -> None:
        """Records `module` from now on, as `fqn`. Register after the framework's own hooks, so
        that what is seen is what the module is really given."""
        names = self._arguments(module, rule)
        guarded = self._session.guarded

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            replaced = self._before(module, fqn, rule, names.bound(args, kwargs))
            return names.rebound(args, kwargs, replaced) if replaced else None

        def after(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> Any:
            return self._after(module, fqn, rule, output)

        self._handles += self._around(module, guarded(before), guarded(after))

    def _arguments(self, module: nn.Module, rule: ModuleRule) -> Arguments:
        return Arguments.of(module, rule)

    def _around(
        self, module: nn.Module, before: Callable[..., Any], after: Callable[..., Any]
    ) -> list[Any]:
        """Has both called at every call of the module; returns handles."""
        return [
            module.register_forward_pre_hook(eager_only(before), with_kwargs=True),
            module.register_forward_hook(eager_only(after), with_kwargs=True),
        ]

    @contextmanager
    def rewriting(self, rewrite: Rewrite | None) -> Iterator[None]:
        """Inside, it puts its values in place of those that pass."""
        before, self.rewrite = self.rewrite, rewrite
        try:
            yield
        finally:
            self.rewrite = before

    def begin_iteration(self) -> None:
        self.last_backward = ""

    @property
    def handles(self) -> Sequence[Any]:
        return self._handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._frames.clear()

    def flush(self) -> None:
        """After the backward: gradients that came along fewer edges than there are."""
        sums, self._sums = self._sums, []
        for total in sums:
            total.flush()

    def begin_forward(self) -> None:
        """A new forward of the root: forgets calls that an exception left unfinished."""
        self._frames.clear()
        if self.draws is not None:
            self.draws.begin()

    @property
    def innermost(self) -> str | None:
        """The innermost module whose forward runs now, or None."""
        return self._frames[-1].fqn if self._frames else None

    def called(self, fqn: str) -> bool:
        """Whether the module was called since capture began."""
        return fqn in self._called

    def _before(
        self, module: nn.Module, fqn: str, rule: ModuleRule, arguments: Mapping[str, Any]
    ) -> dict[str, torch.Tensor]:
        """Records the inputs. Returns those that the module must get in place of its own."""
        if self.draws is not None:
            self.draws.look()
        session, moment = self._session, self._session.moment
        replaced: dict[str, torch.Tensor] = {}
        if moment is None or not session.recording:
            return replaced
        self._called.add(fqn)
        self._note_fp8(module)
        pass_ = session.pass_
        call = moment.next_call(fqn, pass_)
        targets = []
        given = [pair for n, v in arguments.items() for pair in nested.named_tensors(v, n)]
        for name, value in given:
            if isinstance(value, nn.Parameter):
                continue
            known = _choose(rule.inputs.get(name), value)
            if known is not None:
                of, arg = known.names(fqn, name)
                place = Place(moment, known, of, "input", arg, call, pass_)
                session.record_at(place, value)
                if self.rewrite is not None:
                    other = self.rewrite.given(place, value)
                    if other is not value:
                        replaced[name] = value = other
            if value.requires_grad:
                emit = None if known is None else self._grad_input(moment, known, fqn, name, call)
                targets.append(InputTarget(value, emit))
        self._frames.append(_Frame(module, fqn, moment, call, targets))
        return replaced

    def _after(self, module: nn.Module, fqn: str, rule: ModuleRule, output: Any) -> Any:
        if self.draws is not None:
            self.draws.look()
        while self._frames and self._frames[-1].module is not module:
            self._frames.pop()
        if not self._frames:
            return None
        self._note_fp8(module)
        frame = self._frames.pop()
        replaced: dict[str, torch.Tensor] = {}
        tensors = []
        for name, value in nested.outputs(output):
            if isinstance(value, nn.Parameter):
                self._hands_out(module, fqn, name, value)
            known = _choose(rule.outputs.get(name), value)
            if known is not None:
                made, handed_on = self._output(frame, fqn, rule, known, name, value)
                if handed_on is not value:
                    replaced[name] = handed_on
                value = made
            tensors.append(value)
        if frame.targets:
            # What C++ calls the graph is only there if gradients are wanted.
            self._sums += watch_inputs(tensors, frame.targets, self._guarded_edge)
        if not replaced:
            return None
        return nested.with_replaced(output, "0" if torch.is_tensor(output) else "", replaced)

    def _note_fp8(self, module: nn.Module) -> None:
        if not self._session.has_seen(FP8) and in_fp8(module):
            self._session.unsupported(
                FP8,
                "scales of quantised tensors follow the history of the run",
                "compare the run without FP8",
            )

    def _hands_out(self, module: nn.Module, fqn: str, arg: str, value: nn.Parameter) -> None:
        """Megatron's linears return their bias for others to add: its gradient is made there."""
        if (fqn, arg) in self._handed_out:
            return
        self._handed_out.add((fqn, arg))
        own = (name for name, parameter in module._parameters.items() if parameter is value)
        self._session.note("hands_out", fqn=fqn, arg=arg, parameter=next(own, ""))

    def _output(
        self,
        frame: _Frame,
        fqn: str,
        rule: ModuleRule,
        known: TensorRule,
        arg: str,
        value: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The output as it is recorded, and what goes on from it."""
        session, rewrite = self._session, self.rewrite
        place = Place(frame.moment, known, fqn, "output", arg, frame.call, session.pass_)
        if rewrite is not None and rule.computes:
            value = rewrite.made(place, value)
        session.record_at(place, value)
        if rewrite is not None:
            rewrite.seen(place, value)
        if value.requires_grad:
            arrival = place._replace(role="grad_output", pass_="backward")
            if rewrite is None:
                value.register_hook(session.guarded(self._grad_output(arrival)))
            else:
                self._rewrite_gradient(value, rewrite, arrival, rule.computes)
        return value, value if rewrite is None else rewrite.handed_on(place, value)

    def _grad_output(self, place: Place) -> Callable[[torch.Tensor], None]:
        def hook(gradient: torch.Tensor | None) -> None:
            # None: one of several results of compiled code, which the loss does not use.
            if gradient is None or not self._is_of_loss():
                return
            self._session.now.begin_backward(place.moment)
            self._gradient_arrived(place.fqn, gradient)
            self._session.record_at(place, gradient)

        return hook

    def _rewrite_gradient(
        self, value: torch.Tensor, rewrite: Rewrite, place: Place, computes: bool
    ) -> None:
        """A tensor may be handed on by several modules, the inner one first. Its gradient reaches
        the outermost first: it is that module that must show what arrived, while those inside get
        what was put in its place. torch would call hooks in the order of the forward.

        What a module changed in place is another value with a gradient of its own: hooks from
        before the change see the gradient of what the tensor was."""
        version, modules = getattr(value, "_ttrace_modules", (-1, []))
        if version == value._version:
            modules.insert(0, (place, computes))
            return
        modules = [(place, computes)]
        value._ttrace_modules = value._version, modules  # type: ignore[attr-defined]
        session = self._session

        def hook(gradient: torch.Tensor | None) -> torch.Tensor | None:
            if gradient is None or not self._is_of_loss():
                return None
            session.now.begin_backward(place.moment)
            passed_on = gradient
            for at, computes in modules:
                recorded = rewrite.arriving(at, passed_on) if computes else passed_on
                session.record_at(at, recorded)
                passed_on = rewrite.passed_on(at, recorded)
            return None if passed_on is gradient else passed_on

        value.register_hook(session.guarded(hook))

    def _is_of_loss(self) -> bool:
        """Whether the gradient that arrives now is one of a loss."""
        return True

    def _guarded_edge(self, hook: Callable[..., None]) -> Callable[..., Any]:
        def if_of_loss(*args: Any) -> None:
            if self._is_of_loss():
                hook(*args)

        return self._session.guarded(if_of_loss)

    def _gradient_arrived(self, fqn: str, gradient: torch.Tensor) -> None:
        """A container hands on what its last child made, so the gradient of that one tensor arrives
        at both, the child's hook first: the backward that comes next is the child's."""
        place = unwrapped(gradient).data_ptr()
        inside = self.last_backward.startswith(f"{fqn}." if fqn else "")
        if not inside or place != self._last_arrived:
            self.last_backward = fqn
        self._last_arrived = place

    def _grad_input(
        self, moment: Moment, rule: TensorRule, fqn: str, name: str, call: int
    ) -> Callable[[torch.Tensor], None]:
        of, arg = rule.names(fqn, name)
        place = Place(moment, rule, of, "grad_input", arg, call, "backward")

        def emit(gradient: torch.Tensor) -> None:
            self._session.record_at(place, gradient)

        return emit


def _choose(rule: RuleOrChoice | None, value: Any) -> TensorRule | None:
    # Megatron returns biases as outputs: parameters, recorded as such.
    if rule is None or not torch.is_tensor(value) or isinstance(value, nn.Parameter):
        return None
    return rule if isinstance(rule, TensorRule) else rule(value)


def eager_only(hook: _Hook) -> _Hook:
    """A hook that is nothing at all where torch.compile traces it: it is left out of the compiled
    code, without a break of the graph."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        return hook(*args, **kwargs)

    return run  # type: ignore[return-value]


def _named_forward(module: nn.Module) -> Callable[..., Any]:
    """The forward whose signature names the arguments. One put in its place that takes anything, a
    wrapper without functools.wraps, hands them on to the class's."""
    forward: Callable[..., Any] = module.forward
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    replaced = "forward" in vars(module)
    if replaced and all(p.kind in anything for p in inspect.signature(forward).parameters.values()):
        return types.MethodType(type(module).forward, module)
    return forward


@dataclass(frozen=True)
class Arguments:
    """What a module's forward calls its arguments."""

    names: tuple[str, ...]
    rest: str | None = None  # of those that only a `*rest` takes

    @staticmethod
    def of(module: nn.Module, rule: ModuleRule | None = None) -> Arguments:
        if rule is not None and rule.arguments is not None:
            return Arguments(rule.arguments)
        forward = _named_forward(module)
        try:
            parameters = inspect.signature(forward).parameters.values()
        except ValueError:  # not written in Python; one of torch.jit has a schema
            schema = getattr(forward, "schema", None)
            named = () if schema is None else schema.arguments[1:]
            return Arguments(tuple(argument.name for argument in named), "args")
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
        rest = (p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL)
        return Arguments(names, next(rest, None))

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Positional and keyword calls of a module give the same names."""
        values = dict(zip(self.names, args, strict=False))
        rest = args[len(self.names) :]
        if self.rest is not None and rest:
            values[self.rest] = rest
        return values | dict(kwargs)

    def rebound(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        replaced: Mapping[str, torch.Tensor],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with other values at some names."""
        change = nested.with_replaced
        positional = [change(v, n, replaced) for n, v in zip(self.names, args, strict=False)]
        rest = args[len(positional) :]
        if self.rest is not None:
            rest = change(rest, self.rest, replaced)
        return (*positional, *rest), {n: change(v, n, replaced) for n, v in kwargs.items()}
