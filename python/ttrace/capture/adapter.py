"""What a framework's adapter is, and what the neutral part of capture expects of it.

An adapter is a folder of ttrace/adapters and is the only code that knows its framework. It is
event driven: the framework calls it (import hook, wrapped entry points, or the user's
`ttrace.attach`), and it tells the course of the iteration (course.py) what happens. It supplies:

*Names and meshes*: the fqn of a module is the framework's own, wrappers stripped, layers and
experts numbered globally from 0, the root "". A parameter's is its module's plus its own name. The
grid of ranks, and other grids of the same ranks where tensors are cut along those.

*Rules* by module class: `ModuleRule` and `ParameterRule` (placed.py), handed to
`hooks.install(module, fqn, rule)`. What is not known becomes a note: `not_observed` (class without
a rule), `compiled`, `not_recorded` (a tensor whose place is not known), `unsupported`,
`not_materialised` (in the tree or expected there, but not called). Never guess a placement. What
other runs have in two modules and this one in one goes by the names of the two
(`TensorRule.known_as`, a note `fused`).
Parameters of a class without a rule are recorded and grafted if what they declare, and the
reference's shape, place them. Placements, scales and reductions are expectations from (module
class, configuration, topology); attributes that the code under test sets are recorded as notes
(`attribute`) if they differ, and are never an input.

*A parameter store* (parameter_store.py): local and reduced gradients, what this rank owns of them,
what the optimizer holds, and how that follows grafted weights.

*Boundaries*. Once, when model and optimizer exist: `session.start`, `course.open`. At each captured
iteration: `session.next_iteration()` where the one before is over, a `Batch`, `course.begin()`; at
each forward of the root a new `Moment`, between `session.now.begin_forward(moment)` and
`end_forward()` (`moment.micro_batch` is the number of the micro-batch in the global batch, the same
in every topology; a recomputed forward runs inside `session.now.recomputing(position)`, with the
`session.now.position()` at the checkpoint); `course.read` when parameters are readable, which is in
the owning module's pre-hook of the first forward, after any gather;
`course.reducing` right before a reduction that may overlap with backward; `course.backward_done`,
`grafted`, `record_reduced`, `step_begins`, `norm`, `step_over`. Data through `replay_data.wrap`
where there is an iterator, `loss` where the user's loss leaves the loss function. After the last
captured iteration `course.close()`.

*A replayer*, below, handed to `rerun.Reruns`, if an iteration can be run again in the same process.
Else the note `replayer` says "none", and the launcher starts one process per leg: the adapter then
runs the real call as the leg that a `LegFactory` makes of `settings.leg`.

Every callback that runs inside user code goes through `session.guarded`, every context around a
user's call through `session.around`. Nothing here may use torch's random state, communicate outside
`agreement`, or keep a user's tensor alive. A rank that cannot take part in the reruns of an
iteration says so (`rerun.refuse`), so that the others do not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from ttrace.capture.legs import Leg, Refusal
    from ttrace.capture.placed import ParameterRule
    from ttrace.capture.state import GlobalState, Part, Watched


class Replayer(Protocol):
    """Runs the iteration that just ran again, in the same process."""

    def watched(self) -> Iterable[Watched]:
        """Objects whose attributes and buffers an iteration may change."""

    def global_states(self) -> Iterable[GlobalState]:
        """Random states and other globals, beyond those of torch, numpy and Python."""

    def refusal(self, leg: str) -> Refusal | None:
        """Why this leg cannot run here, or None. Looks at this rank only."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""

    def memory(self, leg: str) -> int:
        """Bytes that the leg takes beyond the real call, as an estimate."""

    def save_gradients(self) -> list[Part]:
        """Copies what the real call left for the optimizer: how each part of it is put back."""

    def clear_gradients(self) -> None:
        """As the user's loop does before an iteration."""

    def full_precision(self) -> AbstractContextManager[Any]:
        """Inside, the model computes in fp32 with copies of its (rounded) parameters."""

    def parameters(self) -> Iterable[tuple[str, torch.Tensor, ParameterRule, str]]:
        """(name, parameter in use now, rule, coordinates of this rank's gradient term)."""

    def run(self, leg: Leg, meet: Callable[[], None]) -> None:
        """The iteration on the same data; records gradients as in the real call. `meet()` before a
        collective that is not the user's: raises if a rank is not coming."""

    @property
    def is_trusted(self) -> bool:
        """Whether it is known to make the same iteration. Else the first one is run again before
        any leg and compared, by what follows, which is not called otherwise."""

    @property
    def fails_cleanly(self) -> bool:
        """Whether others may follow a leg that has failed: no rank has left another alone in a
        collective."""

    def problem(self) -> str | None:
        """Why this rank cannot run the iteration again, or None."""

    def sends(self) -> str:
        """The collectives that a rerun calls and the framework does not, in their order: the same
        on all ranks, or none of them runs the iteration again."""

    @property
    def draws_all(self) -> bool:
        """Whether a rerun draws every random number that the real call drew."""

    def repeat(self, meet: Callable[[], None]) -> None:
        """Runs the iteration again. What it records is dropped."""

    def differences(self) -> list[str]:
        """Names of the gradients that are not, bit for bit, those that were saved."""

    def digest(self) -> str:
        """Of all gradients that it brought."""

    def repeatable(self) -> None:
        """It was the same, on all ranks: it is trusted from now on."""

    def not_repeatable(self, reason: str) -> None:
        """It was not: says so, and no iteration will be run again."""
