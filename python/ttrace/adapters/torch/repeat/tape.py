"""What a loop does in one iteration, as calls that can be made again.

A loop of the user's cannot be called. But what it computes between the model's outputs and
`backward()` is a chain of calls of torch, and these can be recorded: calls of the model as a whole
(a module runs its own Python code again), calls of torch on what depends on the model or on a
parameter, collectives on such tensors, and backwards. What the loop does beside that (metrics, log
lines, counters) leads to no gradient and is left out, see needed.py.

A tensor that a recorded call has made has a number, its slot; so have gradients, from the backward
on that makes them, and what the loop does to them before the step is recorded as well. Anything
else that a call is given is taken as it is: it must not have changed by the time the call is made
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ttrace.adapters.torch.dtensors import held_tensor, is_dtensor
from ttrace.adapters.torch.repeat.ambient import Ambient
from ttrace.adapters.torch.repeat.followed_memory import FollowedMemory, Memories, memory_of
from ttrace.capture.nested import mapped, tensors_in


@dataclass(frozen=True)
class Slot:
    """In place of a tensor in the arguments of a call."""

    number: int


@dataclass(frozen=True)
class Given:
    """The same for a tensor that no call has made."""

    tensor: torch.Tensor
    version: int


class Kind(Enum):
    MODEL = auto()  # the model, or what the framework runs as its forward
    CALL = auto()
    COLLECTIVE = auto()
    BACKWARD = auto()
    COPY = auto()  # of a tensor of the loop's that a later call changes
    STEP = auto()  # of an optimizer, others follow
    GIVEN_OUT = auto()  # gradients are complete: recorded, in the real leg


@dataclass
class Event:
    kind: Kind
    name: str  # for messages
    function: Any  # what is called, if it is a call
    args: Any  # (arguments, keyword arguments), with Slot and Given in place of tensors
    takes: tuple[int, ...]  # slots
    ambient: Ambient
    makes: tuple[int, ...] = ()  # slots, in the order in which its result holds them
    # Slots, and the memory of those that it changes in place, or adds hooks to.
    changes: tuple[int, ...] = ()
    problem: str = ""  # why it cannot be made again
    # Slots of tensors that the model keeps in attributes of its modules: where.
    kept: dict[int, Callable[[], Any]] = field(default_factory=dict)
    # Of a backward: what lies in the gradients when it begins (gradient_starts.py), whose gradients
    # its slots are, and whether DistributedDataParallel reduces them.
    starts: Any = None
    leaves: tuple[int, ...] = ()
    reduces: bool = False
    # Of the parameters that it uses, by id: loops switch gradients of some off and on.
    wants: dict[int, bool] = field(default_factory=dict)
    step: Any = None  # what makes it again, of a step (kept_step.py)


_HOOKS = ("register_hook", "retain_grad", "register_post_accumulate_grad_hook")
_KEEP_STATISTICS = ("batch_norm", "instance_norm")
# Whoever takes these goes on with a number, which stays what it is in a rerun.
_NUMBERS = ("item", "tolist", "numpy", "__float__", "__int__", "__index__")


class Tape:
    """Of one iteration. Whoever calls takes care of exceptions; not thread-safe: of the thread
    that trains."""

    def __init__(self, own: Iterable[torch.Tensor], kept: Callable[[torch.Tensor], Any]) -> None:
        """`own`: the model's parameters and buffers. `kept(tensor)`: how to get at a tensor that
        the model keeps in an attribute, or None."""
        self.events: list[Event] = []
        self.memory: list[int] = []  # of each slot: the number of its memory
        self.has_collectives = False  # of the loop's or the model's own
        self.problem = ""  # why the iteration as a whole cannot be run again
        self.leaves: dict[int, torch.Tensor] = {}  # with gradients, that are no part of the model
        self.numbers: set[float] = set()  # that the loop has taken out of what depends on the model
        own = list(own)
        self._own = {id(tensor) for tensor in own}
        self._own_memory = {memory_of(tensor) for tensor in own}
        self._parameters = [tensor for tensor in own if isinstance(tensor, torch.nn.Parameter)]
        self._kept = kept
        self._slots: Any = WeakIdKeyDictionary()
        self._in_graph: dict[int, bool] = {}  # of each slot: whether autograd knew it when made
        self._followed = FollowedMemory()
        self._memories = Memories()

    def give_up(self, reason: str) -> None:
        """The first reason is the one that is said."""
        self.problem = self.problem or reason

    # What happens

    def concerns(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether a call that is given these can be part of what leads to a gradient."""
        wants = torch.is_grad_enabled()
        return any(
            (wants and t.requires_grad) or t in self._slots or self._shares(t) for t in tensors
        )

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a recorded call has made it: what was done to it since is recorded, too."""
        return tensor in self._slots

    def is_own(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._own

    def knows_without(self, name: str, function: Any, args: Any) -> bool:
        """Whether a call switches gradients of a parameter off or on: whoever uses it sees that."""
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        switches = name == "requires_grad_" or (name, attribute) == ("__set__", "requires_grad")
        return switches and bool(args) and id(args[0]) in self._own

    def give_out(self, of: Sequence[torch.Tensor] | None, unscaled: bool) -> None:
        """Gradients of these parameters, or of all, are complete: see store.py."""
        event = Event(Kind.GIVEN_OUT, "gradients", None, (of, unscaled), (), Ambient.now())
        self.events.append(event)

    def begin_call(
        self,
        kind: Kind,
        name: str,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        ambient: Ambient,
    ) -> tuple[Event, list[tuple[torch.Tensor, int]]]:
        """Before it is made. Returns what `end_call` wants."""
        event = Event(kind, name, function, None, (), ambient)
        tensors = tensors_in((args, kwargs))
        if kind is Kind.COLLECTIVE:  # it may write to all that it is given
            written: list[Any] = tensors
        else:
            first = kwargs.get("out", args[0] if args else None)
            written = tensors_in(first) if _changes_first(name, kwargs) else []
            if name.startswith("_amp_"):  # and a number beside
                written = tensors
        for tensor in written:
            self._copy_before_change(tensor, event.ambient)
        if any(isinstance(v, torch.Generator) for v in (*args, *kwargs.values())):
            event.problem = f"{name} is given a generator of the loop's own"
        used = self._parameters if kind is Kind.MODEL else filter(self.is_own, tensors)
        event.wants = {id(parameter): parameter.requires_grad for parameter in used}
        takes: list[int] = []
        event.args = mapped((args, kwargs), lambda tensor: self._reference(tensor, event, takes))
        event.takes = tuple(takes)
        # Of what it writes to by its name the count of changes need not tell.
        known = {id(tensor) for tensor in written}
        return event, [(t, -1 if id(t) in known else version_of(t)) for t in tensors]

    def end_call(
        self, event: Event, before: list[tuple[torch.Tensor, int]], result: Any, made: Any
    ) -> None:
        """After it: `made` are the tensors in `result`, in order."""
        changed = [tensor for tensor, version in before if version_of(tensor) != version]
        if event.name in _KEEP_STATISTICS:
            changed += _statistics(event.args)
        if event.name in _NUMBERS:
            self._take_number(result)
        is_hook = event.name in _HOOKS
        # p.grad = ...
        is_set = event.name == "__set__"
        if event.kind is Kind.CALL and not (made or changed or is_hook or is_set):
            return
        if is_hook:
            changed = [tensor for tensor, _ in before]
        for tensor in changed if event.kind is not Kind.MODEL else ():
            if is_hook and id(tensor) in self._own:
                continue  # a hook of the loop's on a parameter stays there
            if memory_of(tensor) in self._own_memory:
                if not self._shares(tensor):  # of one that has been stepped it is followed
                    event.problem = event.problem or f"{event.name} changes a parameter"
            elif tensor not in self._slots:
                event.problem = event.problem or f"{event.name} changes a tensor of the loop's own"
        written = [self._slots[t] for t in changed if t in self._slots]
        written += [slot for t in changed if (slot := self._followed.slot(t)) is not None]
        event.changes = tuple(dict.fromkeys(written))
        event.makes = tuple(self._slot(tensor) for tensor in made)
        for tensor in (*made, *changed, *(t for t, _ in before if is_set)):
            if tensor in self._slots:
                self._in_graph[self._slots[tensor]] = tensor.requires_grad
        self.events.append(event)

    def end_backward(self, event: Event, leaves: Mapping[int, torch.Tensor]) -> None:
        """After one, which has added to the gradients of these, given by id."""
        there = {key: leaf.grad for key, leaf in leaves.items() if leaf.grad is not None}
        event.leaves = tuple(there)
        event.makes = tuple(self._slot(gradient) for gradient in there.values())
        for slot, gradient in zip(event.makes, there.values(), strict=True):
            self._followed.add(gradient, slot)
            self._in_graph[slot] = gradient.requires_grad
        self.events.append(event)

    def end_step(self, event: Event, parameters: Sequence[torch.Tensor]) -> None:
        """After one, which has changed these: what is done to them from now on is recorded."""
        event.makes = tuple(self._slot(parameter) for parameter in parameters)
        for slot, parameter in zip(event.makes, parameters, strict=True):
            self._followed.add(parameter, slot)
            self._in_graph[slot] = True  # whether it wants a gradient may change
        self.events.append(event)

    def slots_of(self, tensors: Iterable[torch.Tensor | None]) -> list[int]:
        """Those that have one."""
        return [self._slots[t] for t in tensors if t is not None and t in self._slots]

    # Tensors

    def _shares(self, tensor: torch.Tensor) -> bool:
        """Whether it lies where a gradient does, or another tensor that a recorded call wrote."""
        return self._followed.slot(tensor) is not None

    def _slot(self, tensor: torch.Tensor) -> int:
        known = self._slots.get(tensor)
        if known is None:
            known = self._slots[tensor] = len(self.memory)
            self.memory.append(self._memories.number(tensor))
        return known

    def _reference(self, tensor: torch.Tensor, event: Event, takes: list[int]) -> Any:
        known = self._slots.get(tensor)
        if known is None and tensor.grad_fn is not None:
            known = self._find_kept(tensor)
            if known is None:
                event.problem = event.problem or _unseen(tensor, event.name)
        if known is None and self._shares(tensor):
            event.problem = event.problem or (
                f"{event.name} is given a tensor of the loop's own, of shape {list(tensor.shape)},"
                " which shares memory with gradients, or with what is written elsewhere"
            )
        if known is None:
            return self._given(tensor, event.kind)
        if tensor.requires_grad and not self._in_graph.get(known, True):
            # A function of the user's that is not seen has put it out: its own calls were.
            event.problem = event.problem or _unseen(tensor, event.name)
        takes.append(known)
        return Slot(known)

    def _given(self, tensor: torch.Tensor, kind: Kind) -> Given:
        if id(tensor) in self._own or memory_of(tensor) in self._own_memory:
            return Given(tensor, -1)
        if tensor.requires_grad and tensor.is_leaf:
            self.leaves[id(tensor)] = tensor
        elif kind is Kind.MODEL or (tensor.numel() == 1 and not is_dtensor(tensor)):
            return Given(tensor.detach().clone(), 0)  # as a scaler's scale, which it goes on with
        return Given(tensor, version_of(tensor))

    def _find_kept(self, tensor: torch.Tensor) -> int | None:
        """Some models put what belongs to the loss into attributes of their modules."""
        model = next((e for e in reversed(self.events) if e.kind is Kind.MODEL), None)
        read = None if model is None else self._kept(tensor)
        if model is None or read is None:
            return None
        slot = self._slot(tensor)
        model.kept[slot] = read
        return slot

    def _copy_before_change(self, tensor: Any, ambient: Ambient) -> None:
        """What the loop adds to, as to a total that begins with zero, is a part of the chain."""
        if not torch.is_tensor(tensor) or tensor in self._slots or tensor.grad_fn is not None:
            return
        if self._shares(tensor):
            return
        if id(tensor) in self._own or tensor.requires_grad or is_dtensor(tensor):
            return
        value = tensor.detach().clone()
        slot = self._slot(tensor)
        self._followed.add(tensor, slot)
        event = Event(Kind.COPY, "copy", value.clone, ((), {}), (), ambient, makes=(slot,))
        self.events.append(event)

    def _take_number(self, result: Any) -> None:
        if isinstance(result, int | float) and result not in (0, 1):
            self.numbers.add(float(result))


def _statistics(args: Any) -> list[torch.Tensor]:
    """Running ones that a norm in training writes, which no version tells of."""
    given, named = args

    def argument(position: int, *names: str) -> Any:
        return next((named[n] for n in names if n in named), dict(enumerate(given)).get(position))

    if argument(5, "training", "use_input_stats") is False:
        return []
    values = argument(1, "running_mean"), argument(2, "running_var")
    return [value.tensor for value in values if isinstance(value, Given)]


def _changes_first(name: str, kwargs: Any) -> bool:
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name != "__invert__")
    return name.endswith("_") or "out" in kwargs


def _unseen(tensor: torch.Tensor, name: str) -> str:
    made_by = tensor.grad_fn.name() if tensor.grad_fn is not None else "?"
    return (
        f"{name} is given a tensor that was computed where it cannot be seen ({made_by}, of shape"
        f" {list(tensor.shape)})"
    )


def version_of(tensor: torch.Tensor) -> int:
    """How often it was changed."""
    local = held_tensor(tensor)
    return 0 if local.is_inference() else local._version
