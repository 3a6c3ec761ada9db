"""An iteration of a plain torch loop: all that is known of it, in one object.

It lasts from the step of the optimizers before it to its own. Forwards, backwards, data, clipping,
scalers and steps each have a part here; what they have across iterations they keep themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ttrace.adapters.torch.clipping_seen import ClippingSeen
from ttrace.adapters.torch.data_items import DataInUse
from ttrace.adapters.torch.gradients import Gradients
from ttrace.adapters.torch.held_records import HeldRecords
from ttrace.adapters.torch.made_by_roots import MadeByRoots
from ttrace.adapters.torch.micro_batches import MicroBatches
from ttrace.adapters.torch.own_reduction import OwnReduction
from ttrace.adapters.torch.placement import Provenance
from ttrace.adapters.torch.steps_taken import StepsTaken
from ttrace.adapters.torch.topology import Topology
from ttrace.capture.iteration import Iteration
from ttrace.capture.placed import Scale

if TYPE_CHECKING:
    from ttrace.adapters.torch.forwards_seen import SeenForward
    from ttrace.adapters.torch.repeat.gradient_starts import GradientStarts
    from ttrace.adapters.torch.repeat.replayer import LoopReplayer
    from ttrace.adapters.torch.repeat.tape import Tape
    from ttrace.capture.rerun import Reruns


# What forwards and backwards bring.
_OF_A_LEG = "micro_batches gradients own_reduction clipping records provenance".split()


class LoopIteration(Iteration):
    def __init__(self, number: int, leg: str, before: LoopIteration | None = None) -> None:
        super().__init__(number, leg)
        self.micro_batches = MicroBatches(number, leg, before and before.micro_batches)
        self.gradients = Gradients()
        self.own_reduction = OwnReduction()
        self.clipping = ClippingSeen()
        self.data = DataInUse(number)
        self.records = HeldRecords()
        self.made = MadeByRoots()
        self.steps = StepsTaken()
        self.provenance: Provenance | None = None  # within the last forward
        self.evaluated = False  # a forward with gradients, outside of training mode
        self.called_without_gradients = False  # the model, or a part of it
        # What is needed to run it again.
        self.forwards: list[SeenForward] = []
        self.tape: Tape | None = None
        self.gradient_starts: GradientStarts | None = None
        self.replayer: LoopReplayer | None = None
        self.reruns: Reruns | None = None
        # Slots of gradients on the tape, when the loop first clipped them.
        self.left: list[int] | None = None
        self.repeated = False  # its legs are over, or had their time
        self.of_real_leg: LoopIteration = self  # while another runs: a copy
        self._again = 0  # forwards of the leg that runs
        self._follows_forwards = before is not None and before.has_forward

    def following(self) -> LoopIteration:
        return LoopIteration(self.number + 1, self.leg, self)

    @contextmanager
    def rerun(self, leg: str) -> Iterator[None]:
        """Inside, what a leg brings is its own."""
        own = {name: getattr(self, name) for name in _OF_A_LEG}
        before = self.of_real_leg = copy.copy(self)
        self.micro_batches = MicroBatches(self.number, leg, before.micro_batches)
        self.clipping = ClippingSeen()
        self.drop_gradients()
        self.records, self.provenance = HeldRecords(), None
        self.own_reduction = before.own_reduction.again()
        self._again = 0
        self.micro_batches.carry_scale_of(before.micro_batches)
        try:
            with super().rerun(leg):
                yield
        finally:
            vars(self).update(own)
            self.of_real_leg = self

    def next_seen(self) -> SeenForward:
        """Of a leg: the forward that runs again. Raises if there was none more."""
        self._again += 1
        if self._again > len(self.forwards):
            raise RuntimeError("the iteration called its model fewer times")
        return self.forwards[self._again - 1]

    @property
    def is_real(self) -> bool:
        """Whether what runs is the loop itself."""
        return self.of_real_leg is self

    @property
    def has_forward(self) -> bool:
        return self.micro_batches.calls > 0

    @property
    def is_empty(self) -> bool:
        """Whether a step now would belong to no iteration: the last one is over, and its forwards
        were seen."""
        return self._follows_forwards and not self.has_forward and not self.evaluated

    def evaluate(self) -> None:
        """A forward of the model in evaluation mode is no part of it."""
        self.evaluated = True

    def call_without_gradients(self) -> None:
        """As to evaluate, or to generate."""
        self.called_without_gradients = True

    def give_arguments(self, topology: Topology, given: Iterable[torch.Tensor]) -> Provenance:
        """A forward of the model gets these."""
        self.provenance = Provenance(topology, given, self.records.lies)
        return self.provenance

    def placements_of_argument(self, tensor: torch.Tensor) -> str:
        return "" if self.provenance is None else self.provenance.of_argument(tensor)

    def scale_loss(self, scale: Scale, topology: Topology) -> None:
        """Gradients will be 1 / scale times what they mean."""
        self.micro_batches.scale_loss(scale, topology)
        self.gradients.scale_loss(scale)

    def drop_gradients(self) -> None:
        """Those that arrived so far are of no part of it."""
        self.gradients = Gradients()
        if not self.is_real:  # the loop's scaler is not called again
            self.gradients.scale_loss(self.of_real_leg.gradients.loss_scale)
