"""How a rule says where a tensor lies, and the micro-batch that a hook is in.

Plain values, shared by adapters and hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

Scale = tuple[int, int]
# (begin, size, of) of each dimension: local indices [begin, begin + size) of the `of` that the
# placements but RaggedShard give.
Box = tuple[tuple[int, int, int], ...]


# A router's output that says which expert gets which token, and the same as an isolated leg handed
# it on.
ROUTING_MAP = "1"
ROUTING_MAP_USED = "1.used"


class RoutedRows(NamedTuple):
    """Rows that a router chose: the first dimension are tokens that it sent to one expert.

    `by` is the router, `arg` the output of it that holds the map, `expert` the map's column,
    `group` the name of the note `expert_group` that lists the ranks the rows came from, in their
    order, and `tokens` the number of all tokens: sequence times rows of the global batch.
    """

    by: str
    arg: str
    expert: int
    group: str
    tokens: int


@dataclass(frozen=True)
class Routed:
    """`rows` as in the trace. `tokens(chosen, moment)`: which tokens this rank's rows are, in their
    order, where `chosen` says of each (position, row of the global batch) whether it is sent to the
    expert. `coordinate` names this rank among those that hold rows of experts."""

    rows: RoutedRows
    tokens: Callable[[torch.Tensor, Moment], torch.Tensor]
    coordinate: str


@dataclass(frozen=True)
class TensorRule:
    """Where the local tensor of one input or output lies in the logical one.

    `placements` is text as in the trace, one word a mesh dimension, for the dimensions in canonical
    order; `order` gives the local tensor's dimensions in that order where they differ ([B, S, H]
    recorded as [S, B, H] is (1, 0, 2)). The gradient has the same placements: in dense models a
    value that is Partial inside a module is reduced before it leaves it.

    `reduced_over` names mesh dimensions over which the value was summed just now by the code under
    test, `grad_reduced_over` the same for the gradient: evidence, never used to merge.

    `row_offset`: where the batch dimension is cut over ranks, this rank's first row within the
    micro-batch.

    `rows`: the tensor's first dimension counts positions, and for each of them this many rows of
    the micro-batch; the record has a dimension for each of the two.

    `decides`: what is computed from here on depends on it in steps, as on a choice of experts. An
    isolated leg hands on the reference's value, so that all modules after it do the same work.

    `routed`: the first dimension are tokens that a router sent here.

    `known_as`: (module, argument) under which it is recorded, where that is not what it is given
    to: other implementations have a module of that name, which this one has within another.

    `grad_placements`: of the gradient, where they are others. A value without a batch dimension is
    the same for all rows, so that the gradient of each micro-batch is a term of a sum.

    `whole`: the shape of the whole tensor, where its parts may be unlike; its batch dimension says
    nothing.

    `grad_unknown`: why nothing certain can be said of where the gradient lies. Then it is not
    recorded.
    """

    placements: str = ""
    batch_dim: int = -1
    order: tuple[int, ...] | None = None
    reduced_over: tuple[str, ...] = ()
    grad_reduced_over: tuple[str, ...] = ()
    row_offset: int = 0
    rows: int = 0
    decides: bool = False
    routed: Routed | None = None
    grad_placements: str | None = None
    grad_unknown: str = ""
    known_as: tuple[str, str] | None = None
    whole: tuple[int, ...] | None = None

    def names(self, fqn: str, arg: str) -> tuple[str, str]:
        """What an argument of the module `fqn` is recorded as."""
        return self.known_as or (fqn, arg)

    def canonical(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view with the dimensions that a record has."""
        if self.rows:
            tensor = tensor.unflatten(0, (-1, self.rows))
        return tensor if self.order is None else tensor.permute(self.order)

    def local(self, canonical: torch.Tensor) -> torch.Tensor:
        """The inverse."""
        if self.order is not None:
            back = sorted(range(len(self.order)), key=self.order.__getitem__)
            canonical = canonical.permute(back)
        return canonical.flatten(0, 1) if self.rows else canonical


# A rule, or a function that picks one by looking at the tensor (None: not recorded).
RuleOrChoice = TensorRule | Callable[["torch.Tensor"], TensorRule | None]


@dataclass(frozen=True)
class ModuleRule:
    """What is recorded of a module, by the names of its forward's parameters and the indices of
    its outputs.

    `computes` is false for modules that hand on what a child computed, or change no value: noise
    on them would be applied twice. `arguments` names forward's parameters where its signature
    (*args) does not. `not_materialised` lists children that other implementations of the same
    module have and this one fuses away.
    """

    inputs: Mapping[str, RuleOrChoice] = field(default_factory=dict)
    outputs: Mapping[str, RuleOrChoice] = field(default_factory=dict)
    computes: bool = True
    arguments: tuple[str, ...] | None = None
    not_materialised: tuple[str, ...] = ()


@dataclass(frozen=True)
class ParameterRule:
    """Where a parameter and its gradients lie. All are expectations, none is read from the
    parameter's attributes."""

    placements: str = ""
    local_placements: str = ""  # of the gradient before any reduction
    local_scale: Scale = (1, 1)  # of the same
    reduced_over: tuple[str, ...] = ()
    # Of what a rank has to itself where an optimizer is cut into parts.
    owned_placements: str = ""
    whole: tuple[int, ...] | None = None  # the parameter's shape, where parts may be unlike


@dataclass(frozen=True)
class Batch:
    """What is the same for all micro-batches of an iteration."""

    global_rows: int
    micro_batch_size: int
    micro_batches: int  # forward calls on this rank; 0: not known yet
    grad_scale: Scale  # from a recorded activation gradient to that of the global loss
    loss_scale: float = 1.0  # a factor that every gradient carries; in grad_scale already


@dataclass(eq=False)
class Moment:
    """One forward of the model's root, and everything that follows from it in backward.

    Backward hooks keep the Moment of their forward, so the order in which a schedule runs
    micro-batches never matters.
    """

    iteration: int
    leg: str
    micro_batch: int
    batch: Batch
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    call: int = 0  # of the root, in this micro-batch; of several roots all calls differ
    # Where the run that values are taken from has its rows (an adapter's own words); None: at the
    # same place.
    placed: Any = None

    @property
    def row_begin(self) -> int:
        return self.micro_batch * self.batch.micro_batch_size

    def change_batch(self, **values: Any) -> None:
        """More is known of the batch than when the forward began."""
        self.batch = replace(self.batch, **values)

    def place_rows(self, placed: Any) -> None:
        self.placed = placed

    def position(self, pass_: str) -> Position:
        calls = {fqn: count for (fqn, of), count in self.calls.items() if of == pass_}
        return Position(self, calls, again=pass_ == "recompute")

    def next_call(self, fqn: str, pass_: str) -> int:
        """0 for the first use of a module in this forward, then 1, ..."""
        call = self.calls.get((fqn, pass_), 0)
        self.calls[fqn, pass_] = call + 1
        return call


@dataclass(frozen=True, eq=False)
class Position:
    """How far a forward has come where a checkpoint begins, which is where its recomputation begins
    as well: its modules are called in the same order from there on."""

    moment: Moment
    calls: dict[str, int]  # of each module so far
    again: bool  # the checkpoint lies within another one, whose recomputation this is
