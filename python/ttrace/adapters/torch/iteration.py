"""An iteration of a plain torch loop: all that is known of it, in one object.

It lasts from the step of the optimizers before it to its own. Forwards, backwards, data, clipping,
scalers and steps each have a part here; what they have across iterations they keep themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ttrace.adapters.torch.clipping_seen import ClippingSeen
from ttrace.adapters.torch.data_items import DataInUse
from ttrace.adapters.torch.gradients import Gradients
from ttrace.adapters.torch.micro_batches import MicroBatches
from ttrace.adapters.torch.own_reduction import OwnReduction
from ttrace.adapters.torch.placement import Provenance
from ttrace.adapters.torch.steps_taken import StepsTaken
from ttrace.adapters.torch.topology import Topology
from ttrace.adapters.torch.waiting_records import WaitingRecords
from ttrace.capture.iteration import Iteration
from ttrace.capture.placed import Scale


class LoopIteration(Iteration):
    def __init__(self, number: int, leg: str, before: LoopIteration | None = None) -> None:
        super().__init__(number, leg)
        count_before = 0 if before is None else before.micro_batches.count
        self.micro_batches = MicroBatches(number, leg, count_before)
        self.gradients = Gradients()
        self.own_reduction = OwnReduction()
        self.clipping = ClippingSeen()
        self.data = DataInUse(number)
        self.records = WaitingRecords()
        self.steps = StepsTaken()
        self.provenance: Provenance | None = None  # within the last forward
        self.evaluated = False  # a forward with gradients, outside of training mode
        self._follows_forwards = before is not None and before.has_forward

    def following(self) -> LoopIteration:
        return LoopIteration(self.number + 1, self.leg, self)

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
